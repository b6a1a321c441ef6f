"""ATen's operations as this package's, one row of a table each.

ATen counts the batch as axis 0 and the graph leaves it out. A handler is called with the operation's own arguments, in
which an `At` stands for a value computed from the network's input, and everything else is a constant.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from elbowroom.network import operations as ops
from elbowroom.readers.torch import activations, arithmetic, entries, pooling, shapes

aten = torch.ops.aten

HANDLERS: dict[Any, Callable[..., Any]] = {
    operator.getitem: shapes.getitem,
    aten.linear.default: arithmetic.linear,
    aten.matmul.default: arithmetic.matmul,
    aten.mm.default: arithmetic.matmul,
    aten.mv.default: arithmetic.matmul,
    aten.addmm.default: arithmetic.addmm,
    aten.conv1d.default: arithmetic.conv,
    aten.conv1d.padding: arithmetic.conv,
    aten.conv2d.default: arithmetic.conv,
    aten.conv2d.padding: arithmetic.conv,
    aten.conv3d.default: arithmetic.conv,
    aten.conv3d.padding: arithmetic.conv,
    aten.convolution.default: arithmetic.convolution,
    aten._native_batch_norm_legit_no_training.default: arithmetic.batch_norm,
    aten.batch_norm.default: arithmetic.batch_norm_in_use,
    aten.add.Tensor: lambda to, x, y, *, alpha=1: arithmetic.combine(to, x, y, 1, alpha),
    aten.add.Scalar: lambda to, x, y, alpha=1: arithmetic.combine(to, x, y, 1, alpha),
    aten.sub.Tensor: lambda to, x, y, *, alpha=1: arithmetic.combine(to, x, y, 1, -alpha),
    aten.sub.Scalar: lambda to, x, y, alpha=1: arithmetic.combine(to, x, y, 1, -alpha),
    aten.rsub.Tensor: lambda to, x, y, *, alpha=1: arithmetic.combine(to, x, y, -alpha, 1),
    aten.rsub.Scalar: lambda to, x, y, alpha=1: arithmetic.combine(to, x, y, -alpha, 1),
    aten.mul.Tensor: arithmetic.mul,
    aten.mul.Scalar: arithmetic.mul,
    aten.div.Tensor: arithmetic.div,
    aten.div.Scalar: arithmetic.div,
    aten.neg.default: lambda to, x: arithmetic.mul(to, x, -1),
    aten.mean.dim: arithmetic.mean,
    aten.mean.default: arithmetic.mean,
    aten.sum.dim_IntList: arithmetic.sum_,
    aten.sum.default: arithmetic.sum_,
    aten.clone.default: shapes.same,
    aten.alias.default: shapes.same,
    aten.detach.default: shapes.same,
    aten.contiguous.default: shapes.same,
    aten.lift_fresh_copy.default: shapes.same,
    aten._to_copy.default: shapes.same,
    aten.to.dtype: shapes.same,
    aten.type_as.default: shapes.same,
    aten.dropout.default: shapes.dropout,
    aten.view.default: shapes.reshape,
    aten._unsafe_view.default: shapes.reshape,
    aten.reshape.default: shapes.reshape,
    aten.flatten.using_ints: shapes.reshape,
    aten.unflatten.int: shapes.reshape,
    aten.squeeze.default: shapes.reshape,
    aten.squeeze.dim: shapes.reshape,
    aten.squeeze.dims: shapes.reshape,
    aten.unsqueeze.default: shapes.reshape,
    aten.expand.default: shapes.expand,
    aten.permute.default: shapes.permute,
    aten.transpose.int: shapes.transpose,
    aten.t.default: lambda to, x: shapes.transpose(to, x, 0, -1),
    aten.slice.Tensor: shapes.slice_,
    aten.select.int: shapes.select,
    aten.split.Tensor: shapes.split,
    aten.split_with_sizes.default: shapes.split,
    aten.chunk.default: shapes.split,
    aten.unbind.int: shapes.unbind,
    aten.index_select.default: shapes.pick,
    aten.index.Tensor: shapes.index,
    aten.flip.default: shapes.flip,
    aten.cat.default: shapes.cat,
    aten.stack.default: shapes.stack,
    aten.pad.default: shapes.pad,
    aten.constant_pad_nd.default: lambda to, x, pads, value=0: shapes.pad(to, x, pads, value=value),
    aten.avg_pool1d.default: pooling.avg_pool(1),
    aten.avg_pool2d.default: pooling.avg_pool(2),
    aten.avg_pool3d.default: pooling.avg_pool(3),
    aten.max_pool1d.default: pooling.max_pool(1),
    aten.max_pool2d.default: pooling.max_pool(2),
    aten.max_pool3d.default: pooling.max_pool(3),
    aten.max_pool1d_with_indices.default: pooling.first(pooling.max_pool(1)),
    aten.max_pool2d_with_indices.default: pooling.first(pooling.max_pool(2)),
    aten.max_pool3d_with_indices.default: pooling.first(pooling.max_pool(3)),
    aten.adaptive_avg_pool1d.default: pooling.adaptive(ops.AvgPool),
    aten.adaptive_avg_pool2d.default: pooling.adaptive(ops.AvgPool),
    aten.adaptive_avg_pool3d.default: pooling.adaptive(ops.AvgPool),
    aten._adaptive_avg_pool2d.default: pooling.adaptive(ops.AvgPool),
    aten._adaptive_avg_pool3d.default: pooling.adaptive(ops.AvgPool),
    aten.adaptive_max_pool1d.default: pooling.first(pooling.adaptive(ops.MaxPool)),
    aten.adaptive_max_pool2d.default: pooling.first(pooling.adaptive(ops.MaxPool)),
    aten.adaptive_max_pool3d.default: pooling.first(pooling.adaptive(ops.MaxPool)),
    aten.embedding.default: entries.embedding,
    aten.one_hot.default: entries.one_hot,
    aten.relu.default: activations.activation(ops.ReLU()),
    aten.sigmoid.default: activations.activation(ops.Sigmoid()),
    aten.tanh.default: activations.activation(ops.Tanh()),
    aten.arctan.default: activations.activation(ops.Arctan()),
    aten.atan.default: activations.activation(ops.Arctan()),
    aten.silu.default: activations.activation(ops.SiLU()),
    aten.gelu.default: lambda to, x, *, approximate="none": to.add(ops.GELU(approximate == "tanh"), x),
    aten.leaky_relu.default: lambda to, x, slope=0.01: to.add(ops.LeakyReLU(to.number(slope)), x),
    aten.prelu.default: activations.prelu,
    aten._prelu_kernel.default: lambda to, x, slope: to.add(ops.LeakyReLU(to.constant(slope, x)), x),
    aten.elu.default: activations.elu,
    aten.selu.default: activations.selu,
    aten.celu.default: activations.celu,
    aten.hardsigmoid.default: activations.hardsigmoid,
    aten.log_sigmoid.default: activations.log_sigmoid,
    aten.abs.default: activations.abs_,
    aten.maximum.default: activations.maximum,
    aten.max.other: activations.maximum,
    aten.minimum.default: activations.minimum,
    aten.min.other: activations.minimum,
    aten.softplus.default: activations.softplus,
    aten.hardtanh.default: lambda to, x, low=-1, high=1: activations.clip(to, x, low, high),
    aten.relu6.default: lambda to, x: activations.clip(to, x, 0, 6),
    aten.clamp.default: activations.clip,
    aten.clamp_min.default: activations.clip,
    aten.clamp_max.default: lambda to, x, high: activations.clip(to, x, None, high),
}

# These take their shape from the trace, so a batch size among their arguments does no harm.
TAKES_BATCH_SIZE = {shapes.reshape, shapes.expand}

# These take codes as they stand, all others numbers.
TAKES_CODES = (entries.embedding, entries.one_hot)

# These may be given whole numbers that were computed: they move them about, or make real ones of them.
TAKES_WHOLE = {
    shapes.same, shapes.reshape, shapes.permute, shapes.transpose, shapes.slice_, shapes.select, shapes.cat,
    shapes.pick, shapes.index,
}  # fmt: skip

# These give the same numbers in the same order.
KEEPS_ORDER = (shapes.reshape, shapes.same)

SOFTMAX: dict[Any, Callable[..., Tensor]] = {
    aten.softmax.int: torch.softmax,
    aten._softmax.default: torch.softmax,
    aten.log_softmax.int: torch.log_softmax,
    aten._log_softmax.default: torch.log_softmax,
}

_BAG = "EmbeddingBag sums rows for codes of any number; use an Embedding for each column, and add its rows up"

REASONS: dict[Any, str] = {
    aten.native_dropout.default: "drops values at random; use training=self.training",
    aten._native_batch_norm_legit.no_stats: "normalises by the statistics of the batch",
    aten.embedding_renorm.default: "changes its weights as it looks them up (max_norm); train without it",
    aten.embedding_bag.default: _BAG,
    aten.embedding_bag.padding_idx: _BAG,
    aten._embedding_bag.default: _BAG,
    aten._embedding_bag_forward_only.default: _BAG,
}

# The names of ATen's operations that a trace may hold, whatever their overloads.
NAMES = {str(op).split(".")[1] for op in (*HANDLERS, *SOFTMAX) if op is not operator.getitem}
