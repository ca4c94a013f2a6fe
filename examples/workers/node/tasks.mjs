// The tasks of the example, by name.

async function countWords(job, text) {
  const counts = {};
  for (const word of text.toLowerCase().match(/\p{L}+/gu) ?? []) {
    counts[word] = (counts[word] ?? 0) + 1;
  }
  return counts;
}

export default { "text.count_words": countWords };
