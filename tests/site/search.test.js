'use strict'
// Searches the site: BACKHOP_SITE names its directory.

const assert = require('node:assert/strict')
const { readFileSync } = require('node:fs')
const path = require('node:path')
const { test } = require('node:test')
const vm = require('node:vm')

/** Returns the search of the built site: a function that returns the results of a query, the best one first. */
function searchOf (site) {
  const document = { getElementById: () => ({ lastChild: null }) }
  const context = vm.createContext({ document, SPHINX_HIGHLIGHT_ENABLED: false, _ready: () => {}, _: text => text })
  context.window = context
  for (const file of ['_static/searchtools.js', '_static/language_data.js', 'searchindex.js']) { // as in search.html
    vm.runInContext(readFileSync(path.join(site, file), 'utf8'), context, { filename: file })
  }
  const script = query => `Search._performSearch(...Search._parseQuery(${JSON.stringify(query)}))`
  return query => vm.runInContext(script(query), context).reverse()
}

test('P4-27: the search finds statuses of HTTP, and pages before functions of C', () => {
  const search = searchOf(process.env.BACKHOP_SITE)
  const busy = search('429')
  assert.ok(busy.some(([page]) => page === 'howto/busy-api'), JSON.stringify(busy))
  const [[first]] = search('prefetch')
  assert.notEqual(first, 'reference/c')
  assert.equal(search('bh_worker_set')[0][0], 'reference/c')
})
