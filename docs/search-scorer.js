// What counts in the site's search. The numbers are Sphinx's own, but pages of the guide come before others in which a
// word is found as often; names of classes and functions (16 and more) still come before a word in a page's text (5 + 8).
// Pages of methods, whose titles and texts have the name of their class, come after it and after the guide.
var Scorer = {
  score: ([docname, title, anchor, descr, score]) =>
    score +
    (docname.startsWith("guide/") ? 8 : 0) +
    (docname.startsWith("development/") ? -4 : 0) +
    (!descr && /\.[A-Z]\w*\.\w+$/.test(docname) ? -8 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

// A word of up to three letters, such as ROC, is found as a whole word only: what the index has no entry for, it would look
// for within longer words.
{
  const { performTermsSearch, performObjectSearch } = Search;
  const isShort = (word) => word.length < 4;
  Search.performTermsSearch = (words, excluded) => {
    for (const word of [...words].filter(isShort))
      for (const entries of [Search._index.terms, Search._index.titleterms]) entries[word] ??= [];
    return performTermsSearch(words, excluded);
  };
  Search.performObjectSearch = (name, others) =>
    performObjectSearch(name, others).filter(
      ([, found]) => !isShort(name) || found.toLowerCase().split(/\W|_/).includes(name),
    );
}
