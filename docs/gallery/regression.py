# %% [markdown]
# # A regression: how far until the answer is off by 20?
#
# A perceptron predicts how a disease proceeds (scikit-learn's diabetes, 10 measurements). There is no label that
# could stay: here the prediction is to stay within 20 of what it is.

# %%
import torch
from matplotlib import pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import elbowroom as er

data = load_diabetes(as_frame=True, scaled=False)
model = make_pipeline(
    StandardScaler(), MLPRegressor(hidden_layer_sizes=(16,), alpha=1.0, max_iter=3000, random_state=0)
)
model.fit(data.data, data.target)
net = er.load(model)
patients = data.data[::40]
predicted = torch.from_numpy(model.predict(patients))[:, None]  # 12 x 1
print("predicted:", predicted.flatten().round().tolist())

# %% [markdown]
# `outputs_within` says what must hold. Age and sex are known exactly, so they are frozen.

# %%
certs = er.certify(
    net,
    patients,
    spec=er.outputs_within(predicted, 20.0),
    domain=(data.data.min(), data.data.max()),
    frozen=["age", "sex"],
)
print(certs)

# %%
table = certs.to_frame()
middle = table[table.note != "frozen"].groupby("feature")["room"].median().sort_values()
fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
ax.barh(middle.index[::-1], middle[::-1], color="#1f4fd8")
ax.set_xlabel("median room, as a share of the range")
plt.show()

# %% [markdown]
# The measurements at the top must be known best. Proved again, with code that shares nothing with the search:

# %%
print(er.check(certs))
