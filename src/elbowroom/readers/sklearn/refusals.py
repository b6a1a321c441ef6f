"""Why a model is not read, in one sentence each: what it is, and what would do instead."""

from __future__ import annotations

from typing import Any

_INSTEAD = "fit a LogisticRegression or an MLPClassifier (of numbers: Ridge, MLPRegressor) instead"
_TREES = (
    "is made of decision trees: its answer jumps from leaf to leaf, and there is no network in it to bound; "
    f"{_INSTEAD}, to the same labels or to those that the trees give"
)
_KERNEL = f"compares each input with stored ones by a kernel, which has no bound here; {_INSTEAD}, or LinearSVC"
_SEVERAL = "joins several models; give one of them"
_BEFORE = "compute these features before the model, so that they are columns of the table"

_MODULES = {
    "xgboost": _TREES,
    "lightgbm": _TREES,
    "catboost": _TREES,
    "sklearn.tree": _TREES,
    "sklearn.neighbors": f"answers by the nearest of stored inputs, which is no network; {_INSTEAD}",
    "sklearn.gaussian_process": _KERNEL,
    "sklearn.kernel_ridge": _KERNEL,
    "sklearn.kernel_approximation": f"multiplies or bends features by a kernel, which has no bound here; {_INSTEAD}",
    "sklearn.svm": _KERNEL,
    "sklearn.naive_bayes": f"multiplies chances of single features, which has no bound here; {_INSTEAD}",
    "sklearn.isotonic": "is a staircase, which no network is; calibrate by a sigmoid instead",
    "sklearn.multiclass": "joins a model per class or pair of classes; " + _INSTEAD,
    "sklearn.multioutput": "joins a model per output; give one of its estimators_, or fit a Ridge or MLP to all",
    "sklearn.dummy": "answers without looking at the input, so that there is nothing to certify",
    "sklearn.cluster": f"assigns inputs to the nearest centre or cluster, which is not read; {_INSTEAD}",
    "sklearn.mixture": f"is a density, no decision between classes; {_INSTEAD}",
    "sklearn.feature_extraction": "counts words, hashes or patches, which are no columns of numbers; " + _BEFORE,
    "sklearn.manifold": "places inputs among stored ones, which is no network; use PCA",
    "sklearn.cross_decomposition": "is not read; use PCA and a linear model",
    "sklearn.ensemble": _TREES,
}
_NAMES = {
    "VotingClassifier": _SEVERAL,
    "VotingRegressor": _SEVERAL,
    "StackingClassifier": _SEVERAL,
    "StackingRegressor": _SEVERAL,
    "BaggingClassifier": _SEVERAL,
    "BaggingRegressor": _SEVERAL,
    "AdaBoostClassifier": _SEVERAL,
    "AdaBoostRegressor": _SEVERAL,
    "IsolationForest": "finds outliers by random trees, which is no network",
    "QuadraticDiscriminantAnalysis": "squares its features, which has no bound here; use LinearDiscriminantAnalysis",
    "PolynomialFeatures": f"multiplies features with each other, which has no bound here; {_BEFORE}",
    "SplineTransformer": f"bends features by splines, which have no bound here; {_BEFORE}",
    "KBinsDiscretizer": f"cuts features into bins, so that its answer jumps; {_BEFORE}",
    "Binarizer": f"cuts features at a threshold, so that its answer jumps; {_BEFORE}",
    "Normalizer": "divides each row by its own length, which has no bound here; normalise before the model",
    "PowerTransformer": f"takes powers or logarithms, which have no bound here; {_BEFORE}",
    "QuantileTransformer": f"maps features to their ranks, which has no bound here; {_BEFORE}",
    "TargetEncoder": "encodes categories by averages of the target, which is not read; use OneHotEncoder or "
    "OrdinalEncoder",
    "LabelEncoder": "is for labels, and no step of features; use OrdinalEncoder",
    "LabelBinarizer": "is for labels, and no step of features; use OneHotEncoder",
    "KernelCenterer": _KERNEL,
    "KernelPCA": _KERNEL,
    "KNNImputer": "fills missing values by the nearest of stored inputs, which is not read; use SimpleImputer",
    "IterativeImputer": "fills missing values by models of the others, which is not read; use SimpleImputer",
    "MissingIndicator": "says which values are missing, which no input could say; leave it out",
    "PoissonRegressor": "ends in an exponential function, which has no bound here; use Ridge of the logarithm",
    "GammaRegressor": "ends in an exponential function, which has no bound here; use Ridge of the logarithm",
    "TweedieRegressor": "may end in an exponential function, which has no bound here; use Ridge",
    "RANSACRegressor": "only holds the model: give its estimator_",
    "SGDOneClassSVM": "finds outliers, and no classes; " + _INSTEAD,
}


def why(part: Any) -> str:
    """Why this is not read."""
    if isinstance(part, str):
        return "is no step that is known"
    for kind in type(part).__mro__:
        module = kind.__module__
        if module.startswith("elbowroom") or kind is object:
            continue
        own = _NAMES.get(kind.__name__) if module.startswith("sklearn.") else None
        of_module = (reason for name, reason in _MODULES.items() if f"{module}.".startswith(f"{name}."))
        reason = own or next(of_module, None)
        if reason is not None:
            return reason if kind is type(part) else f"is derived from {kind.__name__}, which {reason}"
        if module.startswith("sklearn.") and kind is not type(part) and not kind.__name__.endswith("Mixin"):
            return f"is derived from {kind.__name__}, and may compute something else than that does"
    return "is not known here; docs/tables.md lists what is read"


__all__ = ["why"]
