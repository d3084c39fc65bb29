"""The picture of ``start/which_model.md``: questions from top to bottom, and the term to write where the answer is yes.

``picture()`` is an inline svg: its colours are those of the theme, light or dark, and its boxes are links.
"""

from html import escape

STEPS = (  # the question, what to write, and its page
    ("Is a row a duration, perhaps censored?", 'cens(time, event) ~ x', "../coming_from/survival.html"),
    ("Do you only want to predict, from a table of numbers?", "GaussianProcessClassifier", "gaussian_processes.html"),
    ("Do rows belong to groups: people, schools, sites?", "+ (1|g),  slopes (x|g)", "mixed_models.html"),
    ("Are there crossed groups: raters and items?", "+ (1|rater) + (1|item)", "mixed_models.html"),
    ("Is the effect of a covariate a curve?", "+ s(x),  surfaces te(x, z)", "../terms/s.html"),
    ("Are rows a series in time?", "+ rw2(t),  ar1(t),  seasonal(t, 12)", "../terms.html"),
    ("Are rows regions with neighbours?", "+ bym2(region)", "maps_and_smooths.html"),
    ("Are rows points in the plane?", "+ matern(x, y)", "../maps.html"),
    ("Are rows regions at several times?", "+ interact(icar(r), rw1(t))", "../terms/interact.html"),
)  # fmt: skip
WIDTH, LEFT, RIGHT, STEP, HEIGHT = 680, 300, 306, 62, 44


def picture() -> str:
    """The svg, as html."""
    total = STEP * len(STEPS) + 62
    parts = [
        '<div class="which-model-box">',
        f'<svg class="which-model" viewBox="0 0 {WIDTH} {total}" role="img" xmlns="http://www.w3.org/2000/svg" '
        'aria-label="Questions about the data from top to bottom, and the term to write where the answer is yes">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" class="tip"/></marker></defs>',
        f'<text x="8" y="18" class="head">ask</text><text x="{WIDTH - RIGHT - 6}" y="18" class="head">write</text>',
    ]
    for k, (question, write, page) in enumerate(STEPS):
        top = 30 + k * STEP
        middle, right = top + HEIGHT / 2, WIDTH - RIGHT - 6
        parts += [
            f'<rect x="6" y="{top}" width="{LEFT}" height="{HEIGHT}" rx="8" class="ask"/>',
            *(f'<text x="18" y="{middle + 5 + shift}">{escape(line)}</text>' for line, shift in _lines(question)),
            f'<path d="M{LEFT + 8} {middle} H{right - 4}" class="way" marker-end="url(#tip)"/>',
            f'<text x="{LEFT + 18}" y="{middle - 6}" class="word">yes</text>',
            f'<a href="{page}"><rect x="{right}" y="{top}" width="{RIGHT}" height="{HEIGHT}" rx="8" class="write"/>'
            f'<text x="{right + 12}" y="{middle + 5}" class="code">{escape(write)}</text></a>',
        ]
        if k + 1 < len(STEPS):
            parts.append(f'<path d="M30 {top + HEIGHT + 1} V{top + STEP - 3}" class="way" marker-end="url(#tip)"/>')
            parts.append(f'<text x="38" y="{top + HEIGHT + 13}" class="word">then</text>')
    last = 30 + len(STEPS) * STEP
    parts.append(
        f'<text x="8" y="{last + 8}">If several answers are yes, add the terms in one formula, with covariates.</text>'
    )
    return "\n".join([*parts, "</svg>", "</div>"])


def _lines(text: str) -> list[tuple[str, float]]:
    """A question in one line or in two, with how far each is moved down."""
    if len(text) <= 40:
        return [(text, 0.0)]
    cut = text.rfind(" ", 0, 40)
    return [(text[:cut], -9.0), (text[cut + 1 :], 9.0)]
