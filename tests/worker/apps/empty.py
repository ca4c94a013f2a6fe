"""An app whose tasks are declared in a module that is not imported."""

from windlass.app import Windlass

app = Windlass()
