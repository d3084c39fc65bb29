"""Risk factors of diabetes: logistic regression with the posterior of its coefficients.

The picture shows each coefficient with its 95 % interval: the log odds ratio for one standard deviation of the
measurement. "ridge" learns one prior variance for all coefficients, and "ard" learns one for each. With these seven
coefficients the variances hardly differ.

    python examples/logistic_coefficients.py [picture.png]
"""

import sys

import pandas as pd
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from fenchel.datasets import load_pima
from fenchel.estimators import BayesianLogisticRegression, plot_coefficients


def main(picture=None):
    pima = load_pima()
    words = ["pregnancies", "glucose", "blood pressure", "skin fold", "body mass index", "pedigree", "age"]
    frame, y = pd.DataFrame(pima.X, columns=words), pima.y.astype(int)
    scaler = StandardScaler().set_output(transform="pandas").fit(frame[pima.train])
    train, test = scaler.transform(frame[pima.train]), scaler.transform(frame[pima.test])
    models = {}
    for prior in ("ridge", "ard"):
        models[prior] = model = BayesianLogisticRegression(prior).fit(train, y[pima.train])
        loss = log_loss(y[pima.test], model.predict_proba(test))
        print(f"{prior:>6}: elbo {model.elbo_:.4f}, gap {model.gap_:.0e}, test log loss {loss:.4f}")
    if picture:
        ax = plot_coefficients(models, sort=True, label="log odds for one standard deviation")
        ax.figure.savefig(picture, dpi=150)
    return models


if __name__ == "__main__":
    main(*sys.argv[1:2])
