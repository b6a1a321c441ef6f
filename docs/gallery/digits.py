# %% [markdown]
# # What does it look at?
#
# Two networks that read handwritten digits, alike in accuracy. One learned from the digits as they are, the other
# from digits with noise. How much room does each leave to the pixels?

# %%
import torch
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from torch import nn

import elbowroom as er

digits = load_digits()
x = torch.tensor(digits.data / 16, dtype=torch.float32)  # 1797 x 64, pixels in [0, 1]
y = torch.tensor(digits.target)


def train(noise):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[:1400] + noise * torch.randn(1400, 64)), y[:1400]).backward()
        optimiser.step()
    return model


models = {"as they are": train(0.0), "with noise": train(0.3)}
for name, model in models.items():
    print(f"{name}: {(model(x[1400:]).argmax(1) == y[1400:]).float().mean():.1%} of the test digits are right")

# %% [markdown]
# Eight test digits of each, within the pixels that there are. `labels` are the true ones: a digit that is read
# wrongly has no certificate.

# %%
certs = {
    name: er.certify(er.load(model, input_shape=(64,)), x[1400:1408], labels=y[1400:1408], domain=(0, 1))
    for name, model in models.items()
}
for name, found in certs.items():
    print(name, found)

# %% [markdown]
# `upper - lower` is the room of each pixel, all of them at once: yellow, the whole range; dark, hardly any.

# %%
fig, axes = plt.subplots(3, 8, figsize=(10, 4), layout="constrained")
for k in range(8):
    axes[0, k].imshow(x[1400 + k].reshape(8, 8), cmap="gray_r")
    for row, (name, found) in enumerate(certs.items(), 1):
        room = (found.upper - found.lower)[k].reshape(8, 8)
        axes[row, k].imshow(room, vmin=0, vmax=1)
        axes[row, 0].set_ylabel(name)
for ax in axes.flat:
    ax.set_xticks([])
    ax.set_yticks([])
plt.show()

# %% [markdown]
# The network that learned with noise leaves most of the margins free: pixels there may have nearly any value. The
# other one leaves little room nearly everywhere. The difference, in one number: the median of all pixels' rooms.

# %%
for name, found in certs.items():
    print(f"{name}: {(found.upper - found.lower)[found.certified].median():.3f} of the range of a pixel")
