'use strict'
// The warnings of Backhop in this process, which are not printed; others are.

const warnings = []
const printers = process.listeners('warning')

process.removeAllListeners('warning')
process.on('warning', warning => {
  if (warning.name === 'BackhopWarning') warnings.push(warning)
  else for (const print of printers) print(warning)
})

module.exports = warnings
