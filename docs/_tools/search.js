// The order of the search's results: pages come before functions whose names contain a part of the query. It replaces the
// Scorer of searchtools.js, which the page of the search has loaded before.
Scorer = {
  objNameMatch: 30,
  objPartialMatch: 0,
  objPrio: { 0: 0, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2
}

// Sphinx leaves numbers out of a query. search.py puts numbers of three digits into the index.
{
  const parse = Search._parseQuery
  Search._parseQuery = query => {
    const parsed = parse(query)
    const [, terms, , highlighted] = parsed
    for (const number of query.match(/\b\d{3}\b/g) ?? []) {
      terms.add(number)
      highlighted.add(number)
    }
    return parsed
  }
}
