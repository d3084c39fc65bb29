"""Methods of a fitted model under the names that other software uses: statsmodels, broom and maketables.

    params, bse, conf_int(), cov_params(), fittedvalues, resid, nobs, llf, aic, bic        statsmodels
    tidy(), glance(), augment()                                                            broom, with its columns
    to_latex(), _repr_html_                                                                papers and notebooks
    __maketables_...__                                                                     the protocol of maketables

``names_table`` writes the table of the documentation from the first lines of their docstrings.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import choice, problem, scalar
from ..plots.base import short_name
from . import tables
from .capabilities import answers, check
from .fit_diagnostics import FitDiagnostics
from .reference_grid import listed
from .residuals import is_censored

if TYPE_CHECKING:
    import pandas as pd

    from .fit_tables import FitTables

_EFFECTS = ("fixed", "ran_pars", "ran_vals")
_MOMENTS = ["mean", "sd", "lower", "upper"]
_MOST = 60  # rows of a table in a notebook


class FamiliarNames(FitDiagnostics):
    """The methods of a fitted model under names of other software."""

    predict: Any  # defined by FittedModel

    # -- statsmodels -------------------------------------------------------------------------------
    @property
    def params(self) -> pd.Series:
        """Posterior means of the coefficients: ``coefficients["mean"]``."""
        return self.coefficients["mean"].rename("params")

    @property
    def bse(self) -> pd.Series:
        """Posterior sds of the coefficients: ``coefficients["sd"]``."""
        return self.coefficients["sd"].rename("bse")

    def conf_int(self, alpha: float = 0.05) -> pd.DataFrame:
        """Central posterior intervals of the coefficients of probability 1 - alpha, in columns 0 and 1.

        Examples
        --------
        >>> import fenchel
        >>> data = {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [0.1, 0.9, 2.2, 2.8, 4.1, 5.0]}
        >>> fit = fenchel.fit("y ~ x", data, "gaussian", accuracy="fast")
        >>> fit.params.round(2).to_dict(), fit.conf_int().shape
        ({'Intercept': 0.04, 'x': 0.99}, (2, 2))
        """
        level = 1.0 - scalar("conf_int", "alpha", alpha, 0.0, 1.0)
        table = tables.over_parts(self, lambda part: tables.coefficients(part, level))
        return table[["lower", "upper"]].set_axis([0, 1], axis=1)

    def cov_params(self) -> pd.DataFrame:
        """The posterior covariance of the coefficients: ``covariance``."""
        return self.covariance

    @property
    def fittedvalues(self) -> pd.Series:
        """E[y] of the rows of the data: ``predict()``."""
        table: pd.Series = self.predict()
        return table

    @property
    def resid(self) -> pd.Series:
        """y less ``fittedvalues``: ``residuals("response", leave_one_out=False)``."""
        return self.residuals("response", leave_one_out=False).rename("resid")

    @property
    def nobs(self) -> int:
        """How many rows of the data are observed."""
        models = [self.model, *(part.model for part in self.parts.values())]
        return max(model.reduction.counted(model)[1] for model in models)

    @property
    def llf(self) -> float:
        """Log likelihood at the estimate, effects integrated out: ``log_likelihood("marginal")``. Not the evidence."""
        return float(self.log_likelihood())

    @property
    def aic(self) -> float:
        """-2 llf + 2 df, as R counts df: ``log_likelihood().aic``; ``loo`` is the better criterion."""
        return self.log_likelihood().aic

    @property
    def bic(self) -> float:
        """-2 llf + log(nobs) df: ``log_likelihood().bic``."""
        return self.log_likelihood().bic

    # -- broom -------------------------------------------------------------------------------------
    def tidy(
        self, effects: Any = ("fixed", "ran_pars"), *, conf_level: float = 0.95, exponentiate: bool = False
    ) -> pd.DataFrame:
        """One row for each unknown, by broom's columns: effect, group, term, estimate, std.error, conf.low, conf.high.

        Parameters
        ----------
        effects : "fixed", "ran_pars" or "ran_vals", or several
            Coefficients, hyperparameters (always with 95 % intervals), effects of terms by level.
        conf_level : float
        exponentiate : bool
            Report exp of the coefficients: medians of ratios with their intervals; std.error is estimate times sd.

        Examples
        --------
        >>> import fenchel
        >>> data = {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [0.1, 0.9, 2.2, 2.8, 4.1, 5.0]}
        >>> fenchel.fit("y ~ x", data, "gaussian", accuracy="fast").tidy().round(2)[["effect", "term", "estimate"]]
             effect       term  estimate
        0     fixed  Intercept      0.04
        1     fixed          x      0.99
        2  ran_pars         sd      0.17
        """
        import pandas as pd

        wanted = listed(effects)
        for effect in wanted:
            choice("tidy", "effects", effect, _EFFECTS)
        level = scalar("tidy", "conf_level", conf_level, 0.0, 1.0)
        if level != 0.95 and set(wanted) != {"fixed"}:
            raise problem("tidy", f"conf_level = {level:g} of hyperparameters or effects", '0.95, or effects="fixed"')
        rows = {"fixed": lambda: self._fixed(level, exponentiate), "ran_pars": self._of_theta, "ran_vals": self._levels}
        return pd.concat([rows[effect]() for effect in _EFFECTS if effect in wanted], ignore_index=True)

    def _fixed(self, level: float, exponentiate: bool) -> pd.DataFrame:
        def of_part(part: FitTables) -> pd.DataFrame:
            table, ratio = tables.coefficients(part, level), part.likelihood.ratio
            if exponentiate:
                if ratio is None:
                    raise problem("tidy", "exponentiate=True where exp(coefficient) is no ratio", "exponentiate=False")
                ends = (table[f"{tables.initials(ratio)}_{end}"] for end in ("lower", "upper"))
                columns = table[ratio], table[ratio] * table["sd"], *ends
                table = table.assign(**dict(zip(_MOMENTS, columns, strict=True)))
            return table[_MOMENTS]

        table = tables.over_parts(self, of_part)
        return _broom("fixed", "", table.index, *table.to_numpy().T)

    def _of_theta(self) -> pd.DataFrame:
        table = self.hyperparameters
        sd = table["sd"] if "sd" in table else np.full(len(table), np.nan)
        terms = [", ".join(map(str, one[:-1])) for one in table.index]  # of parts: the part, then the term
        names = table.index.get_level_values(-1) if len(table) else []
        return _broom("ran_pars", terms, names, table["value"], sd, table["lower"], table["upper"])

    def _levels(self) -> pd.DataFrame:
        import pandas as pd

        each = [_broom("ran_vals", "", [], [], [], [], []).assign(level=[])]
        for name, table in self.effects.items():
            columns = [table[key].to_numpy() for key in _MOMENTS]
            each.append(_broom("ran_vals", str(name), [name] * len(table), *columns).assign(level=list(table.index)))
        return pd.concat([one for one in each if len(one)] or each, ignore_index=True)

    def glance(self) -> pd.DataFrame:
        """One row of the whole fit, with broom's columns nobs, df, logLik, AIC, BIC, and those of this package.

        elpd.loo is the sum of ``loo``, elbo the lower bound of the evidence with its gap. Statistics that a kind of fit
        lacks are NaN, and so are elbo and gap of the iterative engine, which are intervals.

        Examples
        --------
        >>> import fenchel
        >>> data = {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [0.1, 0.9, 2.2, 2.8, 4.1, 5.0]}
        >>> list(fenchel.fit("y ~ x", data, "gaussian", accuracy="fast").glance())
        ['nobs', 'df', 'logLik', 'AIC', 'BIC', 'elpd.loo', 'elbo', 'gap', 'converged']
        """
        import pandas as pd

        known = self.log_likelihood() if answers(self, "log_likelihood") else None
        left = [np.nan] * 4 if known is None else [known.df, known.value, known.aic, known.bic]
        elpd = self.loo().elpd if answers(self, "loo") else np.nan
        bound = [np.nan] * 2 if "iterative" in self.limits else [float(self.elbo), float(self.gap)]
        row = [self.nobs, *left, elpd, *bound, self.converged]
        names = ["nobs", "df", "logLik", "AIC", "BIC", "elpd.loo", "elbo", "gap", "converged"]
        return pd.DataFrame([row], columns=names)

    def augment(self, *, interval: float = 0.95) -> pd.DataFrame:
        """The rows of the fit with broom's columns .fitted, .se.fit, .lower, .upper, .resid and .std.resid.

        .lower and .upper belong to E[y]; .resid is y - .fitted (NaN if some durations are censored), .std.resid the
        quantile residual of each row predicted from the others. Rows that were left out do not appear.

        Examples
        --------
        >>> import fenchel
        >>> data = {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [0.1, 0.9, 2.2, 2.8, 4.1, 5.0]}
        >>> list(fenchel.fit("y ~ x", data, "gaussian", accuracy="fast").augment())
        ['x', 'y', '.fitted', '.se.fit', '.lower', '.upper', '.resid', '.std.resid']
        """
        check(self, "residuals")
        model, table = self.model, self.predict(kind="mean", interval=interval)
        table = table.iloc[model.kept]
        out = model.frame.set_axis(model.data_index[model.kept], axis=0)
        names = {"mean": ".fitted", "sd": ".se.fit", "lower": ".lower", "upper": ".upper"}
        out = out.assign(**{new: table[old] for old, new in names.items()})
        left = np.nan if is_censored(self.found.likelihood) else self.resid.iloc[model.kept]
        return out.assign(**{".resid": left, ".std.resid": self.residuals().iloc[model.kept]})

    # -- papers and notebooks ----------------------------------------------------------------------
    def to_latex(self, caption: str = "", label: str = "", *, digits: int = 3) -> str:
        r"""The coefficients as a LaTeX table: mean, sd and 95 % interval, of a ratio its median and interval.

        Examples
        --------
        >>> import fenchel
        >>> data = {"x": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], "y": [0.1, 0.9, 2.2, 2.8, 4.1, 5.0]}
        >>> print(fenchel.fit("y ~ x", data, "gaussian", accuracy="fast").to_latex(digits=1).splitlines()[4])
        x & 1.0 & 0.0 & [0.9, 1.1] \\
        """
        table, parts = self.coefficients, [*self.parts.values()] or [self]
        ratios = [ratio for ratio in dict.fromkeys(part.likelihood.ratio for part in parts) if ratio is not None]
        header = ["", "mean", "sd", r"95 \% interval"]
        header += [_latex(", ".join(ratios)), r"95 \% interval"] if ratios else []
        lines = [r"\begin{tabular}{l" + "r" * (len(header) - 1) + "}", r"\hline", " & ".join(header) + r" \\ \hline"]
        for name, row in zip(table.index, table.to_dict("records"), strict=True):
            cells = [_latex(name), f"{row['mean']:.{digits}f}", f"{row['sd']:.{digits}f}"]
            cells.append(f"[{row['lower']:.{digits}f}, {row['upper']:.{digits}f}]")
            own = [ratio for ratio in ratios if not np.isnan(row[ratio])]  # that of its part, if it has one
            for ratio in own or ratios[:1]:
                ends = (row[f"{tables.initials(ratio)}_{end}"] for end in ("lower", "upper"))
                cells.append(f"{row[ratio]:.{digits}f}" if own else "")
                cells.append(f"[{', '.join(f'{end:.{digits}f}' for end in ends)}]" if own else "")
            lines.append(" & ".join(cells) + r" \\")
        body = "\n".join([*lines, r"\hline", r"\end{tabular}"])
        if not (caption or label):
            return body
        head = [r"\begin{table}", r"\centering", *([rf"\caption{{{caption}}}"] if caption else [])]
        head += [rf"\label{{{label}}}"] if label else []
        return "\n".join([*head, body, r"\end{table}"])

    def _repr_html_(self) -> str:
        """For notebooks: the first lines of the summary, the coefficients and the hyperparameters."""
        top = self.summary().split("\n\n", 1)[0].splitlines()
        out = f"<p>{'<br>'.join(escape(line) for line in [repr(self), *top])}</p>"
        for title, frame in (("Coefficients", self.coefficients), ("Hyperparameters", self.hyperparameters)):
            if len(frame):
                out += f"<p><b>{title}</b></p>{frame.head(_MOST).to_html(float_format=lambda x: f'{x:.4g}')}"
        return out

    # -- maketables --------------------------------------------------------------------------------
    @property
    def __maketables_coef_table__(self) -> pd.DataFrame:
        """Coefficients as maketables reads them: b, se, t, p, ci95l, ci95u; t and p are NaN, as no test is made."""
        import pandas as pd

        table = self.coefficients
        columns = {"b": table["mean"], "se": table["sd"], "t": np.nan, "p": np.nan}
        columns |= {"ci95l": table["lower"], "ci95u": table["upper"]}
        names = pd.Index([short_name(name) for name in table.index], name="Coefficient")
        return pd.DataFrame(columns, index=table.index).set_axis(names, axis=0)

    def __maketables_stat__(self, key: str) -> Any:
        """One statistic of the fit by its key: N, ll, aic, bic, elpd_loo, elbo, r2 and r2_marginal; None for others."""
        glanced = {"N": "nobs", "ll": "logLik", "aic": "AIC", "bic": "BIC", "elpd_loo": "elpd.loo", "elbo": "elbo"}
        if key in glanced:
            return self.glance()[glanced[key]].iloc[0]
        rows = {"r2": "R2 conditional", "r2_marginal": "R2 marginal"}
        return float(self.r2().loc[rows[key], "estimate"]) if key in rows and answers(self, "r2") else None

    @property
    def __maketables_depvar__(self) -> str:
        """The name of y."""
        return str(self.model.response.name)

    @property
    def __maketables_vcov_info__(self) -> Mapping[str, Any]:
        """The kind of standard errors."""
        return {"vcov_type": "posterior sd"}

    @property
    def __maketables_default_stat_keys__(self) -> list[str]:
        """The statistics that a table shows by default."""
        return ["N", "ll", "aic", "elpd_loo"]

    @property
    def __maketables_stat_labels__(self) -> Mapping[str, str]:
        """The labels of the statistics."""
        return {"ll": "Log likelihood", "elpd_loo": "elpd (leave one out)", "r2_marginal": "R2 (marginal)"}


def _broom(effect: str, group: Any, term: Any, *columns: Any) -> pd.DataFrame:
    """A frame with the columns of broom."""
    import pandas as pd

    names = ("estimate", "std.error", "conf.low", "conf.high")
    values = {name: np.asarray(column, dtype=np.float64) for name, column in zip(names, columns, strict=True)}
    called = [short_name(one) for one in term]
    return pd.DataFrame({"effect": effect, "group": group, "term": called, **values}, index=range(len(called)))


def _latex(text: Any) -> str:
    """Text with the special characters of LaTeX escaped."""
    signs: dict[str, Any] = {sign: f"\\{sign}" for sign in "&%$#_{}"}
    words = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "|": "bar"}
    return short_name(text).translate(str.maketrans(signs | {k: rf"\text{v}{{}}" for k, v in words.items()}))


def names_table() -> str:
    """The table of names in the documentation, in markdown: each name with the first line of its docstring."""
    lines = ["| name | what it is |", "|---|---|"]
    for name, answer in vars(FamiliarNames).items():
        if not name.startswith("_"):
            first = str(answer.__doc__).strip().splitlines()[0].replace("``", "`")
            lines.append(f"| `{name}` | {first} |")
    return "\n".join(lines)
