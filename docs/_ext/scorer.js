// What a search leads with. Sphinx's own points, except that the glossary stands below
// pages that have the word in their title, and pages that mention everything stand last.
const LATE = ["docs/gallery", "docs/architecture", "CHANGELOG", "CONTRIBUTING"];

var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, title, anchor, about, score]) => {
    if (page === "docs/glossary") return Math.min(score, 10);
    return LATE.includes(page) ? Math.min(score, 4) : score;
  },
};
