"""Fitted models of scikit-learn: pipelines of tables, linear models, perceptrons."""
