"""The app of the example: it enqueues jobs for workers in other languages."""

from windlass import Windlass

app = Windlass()


def reverse(text: str) -> str:
    raise NotImplementedError  # the code is in shell/reverse.sh


def count_words(text: str) -> dict[str, int]:
    raise NotImplementedError  # the code is in node/tasks.mjs


reverse_text = app.task_named("text.reverse", reverse, queue="shell")
count_words_in = app.task_named("text.count_words", count_words, queue="node", timeout="30s")
