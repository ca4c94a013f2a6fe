"""Read metrics over HTTP, as a scraper does."""

from __future__ import annotations

import re
import urllib.request
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

#: Longer than any scrape takes; reached only if something is broken.
DEADLINE_S: Final = 20.0

#: The values of one sample, by its labels.
Samples = dict[tuple[str, ...], float]


class Scrape:
    """The samples of one answer. Labels are in the order of their names."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples: dict[str, Samples] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = tuple(value for _, value in sorted(sample.labels.items()))
                self._samples.setdefault(sample.name, {})[labels] = sample.value

    @property
    def names(self) -> set[str]:
        return set(self._samples)

    def samples(self, name: str) -> Samples:
        return self._samples.get(name, {})

    def value(self, name: str, *labels: str) -> float:
        """One sample; 0 if there is none, as a counter that has not begun."""
        return self.samples(name).get(labels, 0.0)


def scrape(url: str) -> Scrape:
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        return Scrape(answer.read().decode())


def find_url(log: str) -> str:
    """The url of metrics in the log of a worker; empty before it is known."""
    found = re.search(r"metrics: (http://\S+)", log)
    return found[1] if found else ""
