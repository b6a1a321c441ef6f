# %% [markdown]
# # Which measurement is the tightest?
#
# A perceptron tells three wines apart by 13 measurements, each in its own unit. For every wine: which measurement
# may be off least, as a share of what it ranges over?

# %%
from matplotlib import pyplot as plt
from sklearn.datasets import load_wine
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import elbowroom as er

wine = load_wine(as_frame=True)
model = make_pipeline(StandardScaler(), MLPClassifier((16,), alpha=1.0, max_iter=2000, random_state=0))
model.fit(wine.data, wine.target)
certs = er.certify(model, wine.data[::6], labels=wine.target[::6], domain=(wine.data.min(), wine.data.max()))
print(certs)

# %% [markdown]
# `to_frame` has a row per wine and measurement. `room` is the share of the domain that a range covers.

# %%
table = certs.to_frame()
first = table[(table.input == 0)].sort_values("room")
print(first[["feature", "value", "low", "high", "room"]].head(5).to_string(index=False))

# %% [markdown]
# Over all wines: a dot per wine, the measurement with the least room first.

# %%
order = table.groupby("feature")["room"].median().sort_values(ascending=False).index
fig, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
for place, feature in enumerate(order):
    room = table[table.feature == feature]["room"]
    ax.plot(room, [place] * len(room), "o", alpha=0.4, color="#1f4fd8", markersize=5)
ax.set_yticks(range(len(order)), [name.replace("_", " ") for name in order], fontsize=8)
ax.set_xlabel("room, as a share of the range")
plt.show()

# %% [markdown]
# A region is about all measurements at once. One *alone* may move further, while the others stay exactly as they
# are:

# %%
tightest = order[-1]
alone = er.alone(model, wine.data[:1], tightest, domain=(wine.data.min(), wine.data.max()))
k = list(wine.data).index(tightest)
together = table[(table.input == 0) & (table.feature == tightest)].iloc[0]
print(f"{tightest}: {together.low} to {together.high} with all others anywhere in their ranges,")
print(f"{alone.lower[0, k]} to {alone.upper[0, k]} with all others exactly as they are")
