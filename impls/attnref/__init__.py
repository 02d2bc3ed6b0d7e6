"""One attention spec and three independent implementations of it.

Import the room of your framework; nothing is dispatched for you::

    from attnref.numpy import attention
    from attnref.torch import attention
    from attnref.jax import attention

Every room has the same public names, and `attnref.spec` holds what they share: the
axis letters, the einops patterns, the mask predicates, the conventions and the errors.
Importing this package imports no framework.
"""

__version__ = "0.1.0"
