#!/usr/bin/python3
"""Writes tests/golden/metrics.txt: what scikit-learn and PyTorch make of the answers there.

The committed file is from scikit-learn 1.2 and PyTorch 1.13 of Debian (python3-sklearn, python3-torch):
  tests/golden/make_metrics.py

Every token has a row of logits of its own, some of them equal; a label of -100 counts for nothing, nor
does one of weight 0. One line a record, a key, then values:
  logits Z...                        of token 0, 1, ...
  sample TOKENS... LABELS... WEIGHTS...
  target Y... T...                   a prediction and its targets
  value NAME VALUE                   of all of them, as if there were no weights
  weighted NAME VALUE                with the weights
"""
import os

import numpy
import sklearn
import torch
from gaccd_random import stream, uniform
from sklearn import metrics

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "metrics.txt")
TOKENS, CLASSES, SAMPLES, LENGTH, OUTPUTS = 13, 5, 41, 3, 2


def whole(a, b, count, below):
    return (stream(a, b, count) % numpy.uint64(below)).astype(numpy.int64)


def write(out, key, *rows):
    for values in zip(*rows):
        out.write(key + " " + " ".join("%.9g" % x for row in values for x in numpy.atleast_1d(row)) + "\n")


def of_labels(logits, labels, weights):
    """Of the tokens that count: weights matter to the loss alone."""
    counts = (labels != -100) & (weights != 0)
    logits, labels, weights = logits[counts], labels[counts], weights[counts]
    answers = logits.argmax(1)
    before = (-logits).argsort(1, kind="stable")
    loss = torch.nn.functional.cross_entropy(torch.from_numpy(logits), torch.from_numpy(labels),
                                             reduction="none").numpy()
    return {"accuracy": metrics.accuracy_score(labels, answers),
            "top_2": (before[:, :2] == labels[:, None]).any(1).mean(),
            "f1_macro": metrics.f1_score(labels, answers, average="macro"),
            "f1_micro": metrics.f1_score(labels, answers, average="micro"),
            "matthews": metrics.matthews_corrcoef(labels, answers),
            "perplexity": numpy.exp((weights * loss).sum() / weights.sum())}


def main():
    numpy.seterr(over="ignore")
    logits = numpy.round(4 * uniform(stream(90, 0, TOKENS * CLASSES))).reshape(TOKENS, CLASSES) / 2
    tokens = whole(90, 1, SAMPLES * LENGTH, TOKENS)
    # Often the answer; class 0 is no label, and the last samples have few of the others.
    labels = numpy.where(whole(90, 2, len(tokens), 2) == 0, logits[tokens].argmax(1),
                         1 + whole(90, 3, len(tokens), CLASSES - 1))
    labels = numpy.where(labels == 0, 1, labels)
    labels = numpy.where(numpy.arange(len(tokens)) > 70, numpy.minimum(labels, 2), labels)
    labels = numpy.where(whole(90, 4, len(tokens), 4) == 0, -100, labels)
    weights = whole(90, 5, len(tokens), 5) / 4
    targets = 1000 + uniform(stream(90, 6, SAMPLES * OUTPUTS)).reshape(SAMPLES, OUTPUTS)
    predictions = targets + 0.25 * uniform(stream(90, 7, SAMPLES * OUTPUTS)).reshape(SAMPLES, OUTPUTS)
    targets, predictions = targets.astype("f4"), predictions.astype("f4")
    with open(OUT, "w") as out:
        out.write("scikit-learn %s torch %s\n" % (sklearn.__version__, torch.__version__))
        write(out, "logits", logits)
        write(out, "sample", *(x.reshape(SAMPLES, LENGTH) for x in (tokens, labels, weights)))
        for name, value in of_labels(logits[tokens], labels, numpy.ones(len(tokens))).items():
            out.write("value %s %.15g\n" % (name, value))
        for name, value in of_labels(logits[tokens], labels, weights).items():
            out.write("weighted %s %.15g\n" % (name, value))
        write(out, "target", predictions, targets)
        t, y = targets.astype("f8"), predictions.astype("f8")
        for name, value in {"mse": metrics.mean_squared_error(t, y),
                            "mae": metrics.mean_absolute_error(t, y),
                            "r2": metrics.r2_score(t, y)}.items():
            out.write("value %s %.15g\n" % (name, value))


if __name__ == "__main__":
    main()
