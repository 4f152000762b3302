// Elements. Text reaches the page as text alone: no markup is ever made of data. Texts and names of messages, queues
// and users are foreign: bdi() keeps their direction of writing to themselves.
import { post } from './api.js'
import { count, messages } from './format.js'

const SVG = 'http://www.w3.org/2000/svg'

// Characters that control a terminal or change the direction of a text, as in utf8.h. Tabs and line feeds may stay.
// eslint-disable-next-line no-control-regex
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g
const visible = text => String(text).replace(CONTROLS, '?')
const SHOWN = ['title', 'aria-label', 'data-name']

function fill (element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value)
    else if (value === true) element.setAttribute(name, '')
    else if (value !== false && value != null) {
      element.setAttribute(name, SHOWN.includes(name) ? visible(value) : String(value))
    }
  }
  for (const child of children.flat(3)) {
    if (child != null && child !== false) element.append(child instanceof Node ? child : visible(child))
  }
  return element
}

// h('p', { class: 'muted' }, 'text', h('b', {}, 'more'))
export const h = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children)
export const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children)

// A foreign text within another text.
export const bdi = text => h('bdi', {}, text)

// Foreign texts with ", " between them.
export const bdis = list => list.map((each, at) => [at > 0 && ', ', each instanceof Node ? each : bdi(each)])

// Appends children; null and false are left out.
export const add = (element, ...children) => fill(element, {}, children)

// Replaces what an element has.
export function set (element, ...children) {
  element.replaceChildren()
  fill(element, {}, children)
}

const nameOf = element => element.getAttribute('href') || element.textContent

// Replaces what an element has. A link or button that has the focus has it afterwards too, if it is there again.
export function redraw (element, ...children) {
  const { activeElement: focused } = document
  const same = () => [...element.querySelectorAll('a, button')].filter(each => nameOf(each) === nameOf(focused))
  const at = element.contains(focused) ? same().indexOf(focused) : -1
  set(element, ...children)
  if (at >= 0) same()[at]?.focus()
}

// A table. A column is [title, cell(row), class]; on a narrow screen each row is a card.
export function table (caption, columns, rows) {
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption },
    h('table', { class: 'cards' },
      h('thead', {}, h('tr', {}, columns.map(([title, , kind]) => h('th', { scope: 'col', class: kind }, title)))),
      h('tbody', {}, rows.map(row => h('tr', {}, columns.map(([title, cell, kind]) =>
        h('td', { class: kind, 'data-name': title }, cell(row))))))))
}

let number = 0
export function field (label, input, hint) {
  input.id ||= `field-${++number}`
  return h('div', {}, h('label', { for: input.id }, label), input, hint && h('span', { class: 'small muted' }, hint))
}

export const select = (options, value, more = {}) =>
  h('select', more, options.map(([key, text]) => h('option', { value: key, selected: key === value }, text)))

export const problem = error => h('div', { class: 'card problem', role: 'alert' }, error.message || String(error))

// A button that is off while its work runs, and shows its problem below it. It has the focus again at the end.
export function button (text, work, kind = '') {
  const place = h('div')
  const it = h('button', {
    type: 'button',
    class: kind,
    onclick: async () => {
      const hadFocus = document.activeElement === it
      it.disabled = true
      set(place)
      try {
        await work()
      } catch (error) {
        set(place, problem(error))
      }
      it.disabled = false
      if (hadFocus && document.activeElement === document.body) it.focus({ preventScroll: true })
    }
  }, text)
  return h('div', {}, it, place)
}

// A line that shows how far the look is that runs, and a button that stops it. It follows the state until it leaves the
// page.
export function lookProgress (app) {
  const line = h('p', {}, 'Reading…')
  const stop = button('Stop reading', () => post('stop', { look: true }))
  let wasShown = false
  const show = ({ look }) => {
    wasShown ||= line.isConnected
    if (wasShown && !line.isConnected) app.listeners = app.listeners.filter(each => each !== show)
    else if (look) {
      set(line, `Reading: ${count(look.looked_at)} of ${messages(look.messages)} in `, bdi(look.queue), '…')
    }
  }
  app.onState(show)
  return h('div', {}, line, stop)
}

export function copyButton (text) {
  const it = h('button', {
    type: 'button',
    onclick: async () => {
      await navigator.clipboard.writeText(text)
      it.textContent = 'Copied'
      setTimeout(() => { it.textContent = 'Copy' }, 1500)
    }
  }, 'Copy')
  return it
}
