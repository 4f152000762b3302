'use strict'
// The switch between versions of the site. docs/_tools/publish makes one directory for each version, and versions.json
// beside them, which lists their names. A site outside such a directory does not request the file, and has no switch.

const { content_root: root } = document.documentElement.dataset

/** The page that shows now, in the site of another version; its first page, if that version does not have it. */
async function pageIn (site) {
  const here = new URL(root, location.href)
  const same = new URL(location.pathname.slice(here.pathname.length), site)
  const answer = await fetch(same, { method: 'HEAD' })
  return answer.ok ? same : new URL('index.html', site)
}

async function show () {
  const here = new URL(root, location.href).pathname.split('/').at(-2)
  if (!/^\d+[.]\d+[.]\d+$/.test(here)) return
  const all = new URL(root + '../versions.json', location.href)
  const answer = await fetch(all)
  if (!answer.ok) return
  const place = document.querySelector('.versions')
  const select = place.querySelector('select')
  for (const name of await answer.json()) select.add(new Option(name, name, name === here, name === here))
  select.addEventListener('change', async () => {
    location.assign(await pageIn(new URL(select.value + '/', all)))
  })
  place.hidden = false
}

if (location.protocol.startsWith('http')) document.addEventListener('DOMContentLoaded', () => show())
