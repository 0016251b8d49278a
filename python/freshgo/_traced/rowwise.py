"""Operations that compute each row from the same row of their arguments.

A name in these lists is necessary and not sufficient: ``softmax`` is one over columns and none over rows. What a model
does with it is tried on rows (:mod:`freshgo._infer.trials`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from freshgo._traced.levels import ENDS, level

_OF_NUMBERS_OR_ROWS = """
    abs absolute add addcdiv addcmul and_ asinh acosh atanh asin acos atan atan2 bitwise_and bitwise_or bitwise_not
    bitwise_xor bool bfloat16 ceil celu clamp clamp_max clamp_min clip clone contiguous cos cosh cpu cuda detach div
    divide double elu eq erf erfc exp exp2 expm1 fill float floor floor_divide floordiv fmod frac full_like ge gelu gt
    half hardshrink hardsigmoid hardswish hardtanh heaviside hypot int invert isfinite isinf isnan le leaky_relu lerp
    lgamma log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor logit logsigmoid long lt
    masked_fill maximum minimum mish mod mul multiply nan_to_num ne neg negative ones_like or_ pos positive pow prelu
    rad2deg reciprocal relu relu6 remainder round rrelu rsqrt rsub selu sgn sigmoid sign silu sin sinc sinh softplus
    softshrink softsign sqrt square sub subtract tan tanh tanhshrink threshold to true_divide truediv trunc type
    type_as where xlogy xor zeros_like

    all amax amin any argmax argmin argsort batch_norm bilinear bmm cat chunk concat concatenate
    cosine_similarity cumprod cumsum diff dropout einsum embedding expand expand_as flatten flip gather getitem glu
    group_norm hstack hsplit index_select kthvalue layer_norm linear linalg_norm linalg_vector_norm log_softmax
    logsumexp matmul max mean median min mm mode movedim narrow new_empty new_full new_ones new_zeros norm
    normalize one_hot pad pairwise_distance permute prod renorm repeat repeat_interleave reshape reshape_as rms_norm
    roll select sort split split_with_sizes squeeze stack std std_mean softmax softmin sum swapaxes swapdims
    take_along_dim tensor_split tile topk transpose unbind unflatten unsqueeze var var_mean vecdot view view_as vstack
    alpha_dropout feature_dropout feature_alpha_dropout
"""

FUNCTIONS = frozenset(_OF_NUMBERS_OR_ROWS.split())
"""Names of functions, of methods of tensors, and of ``operator``: of one number at a time, and of a row."""

RANDOM = ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout", "rrelu")
"""Functions that draw random numbers if they are told to train."""

IDENTITIES = ("contiguous", "detach", "clone", "dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
"""Functions that return the rows that they get, in evaluation."""

CASTS = ("long", "to", "type")
"""Methods that return the edges that they get, where these have the dtype and the device already."""

METADATA = ("dim", "ndimension", "is_floating_point", "is_complex", "is_contiguous", "get_device", "element_size")
"""Methods whose result is the same for every number of rows."""

_CLASSES = """
    AlphaDropout BatchNorm BatchNorm1d Bilinear CELU CosineSimilarity DiffGroupNorm Dropout Dropout1d ELU Embedding
    FeatureAlphaDropout Flatten GELU GLU GroupNorm GRU GRUCell Hardshrink Hardsigmoid Hardswish Hardtanh
    HeteroBatchNorm HeteroLayerNorm HeteroLinear Identity LayerNorm LeakyReLU Linear LogSigmoid LogSoftmax LSTM
    LSTMCell MessageNorm Mish MultiheadAttention NonDynamicallyQuantizableLinear PairwiseDistance PositionalEncoding
    PReLU ReLU ReLU6 RMSNorm RNN RNNCell RReLU SELU Sigmoid SiLU Softmax Softmin Softplus Softshrink Softsign Tanh
    Tanhshrink TemporalEncoding Threshold TransformerEncoderLayer Unflatten
"""

MODULES = frozenset(_CLASSES.split())
"""Classes of torch.nn and torch_geometric.nn."""

_SAME = ("Identity", "Dropout", "Dropout1d", "AlphaDropout", "FeatureAlphaDropout")

_OF_NUMBERS = ("ReLU", "ELU", "LeakyReLU", "GELU", "SiLU", "Tanh", "Sigmoid", "ReLU6", "SELU", "CELU", "Softplus")
"""Classes of torch.nn that take one number at a time."""

_FUNCTIONS_OF_NUMBERS = ("relu", "elu", "leaky_relu", "gelu", "silu", "tanh", "sigmoid", "relu6", "selu", "softplus")


def name_of(node: fx.Node) -> str:
    """The name of what a node calls."""
    if isinstance(node.target, str):
        return node.target
    if node.target is getattr:
        return str(node.args[1])
    return str(getattr(node.target, "__name__", node.target))


def is_known_function(target: Any) -> bool:
    """Whether a function is one of PyTorch's or Python's by which the lists go."""
    module = getattr(target, "__module__", None) or ""
    builtin = module in ("_operator", "operator")
    overload = type(target).__name__ in ("builtin_function_or_method", "method_descriptor", "OpOverloadPacket")
    return builtin or overload or str(module).partition(".")[0] == "torch"


def why_not_rowwise(node: fx.Node, module: Any) -> str | None:
    """Why a call is not taken, as far as its name tells."""
    if module is not None:
        return _why_not_module(module)
    name = name_of(node)
    if name not in FUNCTIONS or (node.op == "call_function" and not is_known_function(node.target)):
        return f"{name} is not among the operations that are known to compute each row by itself"
    if name in RANDOM and _training(node):
        return f"{name} is random, as it trains: give it training=self.training (and call eval() before to_hetero)"
    if name == "batch_norm" and _training(node):
        return "batch_norm is told to train, and so takes means over nodes"
    return None


def _training(node: fx.Node) -> bool:
    """Whether a function is told to train."""
    name, args, kwargs = name_of(node), node.args, node.kwargs
    if "training" in kwargs:
        return bool(kwargs["training"])
    if "train" in kwargs:
        return bool(kwargs["train"])
    place = {"batch_norm": 5, "rrelu": 3}.get(name, 2)
    default = name in ("dropout",) and getattr(node.target, "__module__", "") == "torch.nn.functional"
    return bool(args[place]) if len(args) > place else default


def class_of(module: Any) -> type[Any]:
    """Return the class that a module was made with: ``weight_norm`` and its kind derive one of their own from it."""
    kind: type[Any] = type(module)
    return kind.__mro__[1] if torch.nn.utils.parametrize.is_parametrized(module) else kind


def _why_not_module(module: Any) -> str | None:
    kind = class_of(module).__name__
    if kind not in MODULES:
        if type(module).__module__.startswith("torch_geometric.nn.norm"):
            return f"{kind} normalises over all nodes at once"
        if type(module).__module__.startswith(("torch_geometric.nn.pool", "torch_geometric.nn.aggr")):
            return f"{kind} pools nodes"
        return f"{kind} is not among the modules that are known to compute each row by itself"
    if getattr(module, "mode", "node") not in ("node", "cat", "max", "lstm") and "Norm" in kind:
        return f"{kind} with mode={module.mode!r} normalises over all nodes at once"
    inner = getattr(module, "module", module)
    if isinstance(inner, torch.nn.modules.batchnorm._BatchNorm) and inner.running_mean is None:
        return f"{kind} without running statistics normalises over all nodes at once"
    return None


def is_identity(node: fx.Node, module: Any) -> bool:
    """Whether a call returns the rows, or the edges, that it gets."""
    first = node.args[0] if node.args else None
    if isinstance(first, fx.Node) and level(first).kind == ENDS:
        value, given = node.meta["value"], first.meta["value"]
        same = name_of(node) in (*IDENTITIES, *CASTS) and isinstance(value, torch.Tensor) and value.dtype == given.dtype
        return same and torch.equal(value, given)
    if module is not None:
        hooked = module._forward_hooks or module._forward_pre_hooks
        return type(module).__name__ in _SAME and not hooked
    return name_of(node) in IDENTITIES


def is_columnwise(node: fx.Node, module: Any) -> bool:
    """Whether a call computes each column from the same column of its first argument, which alone is no constant."""
    first = node.args[0] if node.args else None
    if any(other is not first for other in node.all_input_nodes):
        return False
    if module is None:
        return name_of(node) in _FUNCTIONS_OF_NUMBERS
    if module._forward_hooks or module._forward_pre_hooks:
        return False
    return is_batch_norm(module) or (
        type(module).__name__ in _OF_NUMBERS and type(module).__module__.startswith("torch.nn.modules.activation")
    )


def is_batch_norm(module: Any) -> bool:
    """Whether a module is a BatchNorm over columns, of PyTorch's or of PyG's."""
    inner = module.module if type(module).__name__ == "BatchNorm" else module
    return type(inner) is torch.nn.BatchNorm1d and inner.running_mean is not None


def columns_of(module: Any, columns: slice, rows: torch.Tensor) -> torch.Tensor:
    """Some columns of what a module that ``is_columnwise`` makes, of the same columns."""
    if not is_batch_norm(module):
        made: torch.Tensor = module(rows)
        return made
    norm = module.module if type(module).__name__ == "BatchNorm" else module
    weight, bias = (None if each is None else each[columns] for each in (norm.weight, norm.bias))
    mean, variance = norm.running_mean[columns], norm.running_var[columns]
    return torch.nn.functional.batch_norm(rows, mean, variance, weight, bias, training=False, eps=norm.eps)
