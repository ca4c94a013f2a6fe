/* What a search finds, in the order in which it helps: what one reads to use windlass comes before
 * why it is as it is. A `Scorer` takes the place of that of Sphinx as a whole, so all that it is asked
 * for is here; but for `score` these are Sphinx's own values. */
var Scorer = {
  score: ([page, , , , score]) => {
    if (page.startsWith("decisions/")) return score - 30;
    if (page.startsWith("internals/")) return score - 15;
    return page.startsWith("guides/") ? score + 5 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
