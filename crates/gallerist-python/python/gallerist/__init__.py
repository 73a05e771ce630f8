"""Deep metric learning and image retrieval.

- :mod:`gallerist.losses`: ranking losses on NumPy arrays; :mod:`gallerist.torch`: the same as ``torch.nn.Module``.
- :mod:`gallerist.miners`: choices of pairs for the losses that take one.
- :func:`gallerist.evaluate`: the metrics and protocols of the field.
- :func:`gallerist.search`: exact search; :class:`gallerist.Index`: galleries that change.
- :func:`gallerist.load`, :func:`gallerist.save`: embeddings files.
- :func:`gallerist.train`, :func:`gallerist.resume`: runs; :class:`gallerist.Model`: trained networks.
- :func:`gallerist.map`: points in the plane; :func:`gallerist.report`: a page that a notebook shows.
"""

from __future__ import annotations

from . import losses, miners
from ._evaluate import Evaluation, evaluate, metrics, protocols
from ._figures import Report, map, report  # noqa: A004
from ._files import Embeddings, Source, load, save
from ._index import Index
from ._model import Model
from ._native import version as _version
from ._search import search
from ._train import resume, train

__version__ = _version()
__all__ = [
    "Embeddings",
    "Evaluation",
    "Index",
    "Model",
    "Report",
    "Source",
    "evaluate",
    "load",
    "losses",
    "map",
    "metrics",
    "miners",
    "protocols",
    "report",
    "resume",
    "save",
    "search",
    "set_threads",
    "train",
]


def set_threads(count: int) -> int:
    """Sets the number of compute threads, for the whole process and only before the first computation.

    The threads are started, so that a process that is forked later cannot compute.

    :param count: number of threads; 0 leaves it as it is (one thread a core).
    :returns: the number of threads in use.
    :raises RuntimeError: in a fork of a process that has started its compute threads.
    """
    from . import _arrays, _native

    return _native.threads(_arrays.integer(count, "count"))
