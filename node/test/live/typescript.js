'use strict'
// Loads the recipes that are written in TypeScript: node -r ./typescript.js FILE.

const { readFileSync } = require('node:fs')
const path = require('node:path')

const { convertCompilerOptionsFromJson, transpileModule } = require('typescript')

const { compilerOptions } = require('../../examples/recipes/tsconfig.json')

require.extensions['.ts'] = (module, fileName) => {
  const { options } = convertCompilerOptionsFromJson({ ...compilerOptions, noEmit: false }, path.dirname(fileName))
  module._compile(transpileModule(readFileSync(fileName, 'utf8'), { fileName, compilerOptions: options }).outputText,
    fileName)
}
