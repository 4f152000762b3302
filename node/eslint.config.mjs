import js from '@eslint/js'
import stylistic from '@stylistic/eslint-plugin'

const readonly = names => Object.fromEntries(names.map(name => [name, 'readonly']))
const OF_NODE = readonly([
  'AbortController', 'AbortSignal', 'Buffer', 'URL', 'WebAssembly', '__dirname', 'clearInterval', 'clearTimeout',
  'console', 'global', 'module', 'performance', 'process', 'queueMicrotask', 'require', 'setImmediate', 'setInterval',
  'setTimeout'
])
const OF_BROWSERS = readonly([
  'EventSource', 'Node', 'Option', 'TextDecoder', 'TextEncoder', 'URL', 'URLSearchParams', 'WebAssembly', 'atob',
  'clearInterval', 'clearTimeout', 'document', 'fetch', 'location', 'navigator', 'setInterval', 'setTimeout', 'window'
])

export default [
  js.configs.recommended,
  stylistic.configs.customize({ indent: 2, quotes: 'single', semi: false, commaDangle: 'never', braceStyle: '1tbs' }),
  {
    files: ['**/*.{js,mjs}'],
    languageOptions: { ecmaVersion: 2022 },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      '@stylistic/space-before-function-paren': ['error', 'always'],
      '@stylistic/max-len': ['error', { code: 120 }],
      '@stylistic/quotes': ['error', 'single', { avoidEscape: true }],
      '@stylistic/arrow-parens': ['error', 'as-needed'],
      '@stylistic/generator-star-spacing': ['error', 'both'],
      '@stylistic/max-statements-per-line': 'off',
      '@stylistic/multiline-ternary': 'off',
      '@stylistic/no-mixed-operators': 'off',
      '@stylistic/operator-linebreak': ['error', 'after', { overrides: { '?': 'before', ':': 'before' } }],
      '@stylistic/quote-props': ['error', 'as-needed'],
      '@stylistic/object-curly-newline': 'off',
      eqeqeq: 'error',
      'no-shadow': 'off',
      'no-unused-vars': ['error', { args: 'after-used', ignoreRestSiblings: true }],
      'no-var': 'error',
      'prefer-const': ['error', { destructuring: 'all' }],
      strict: ['error', 'global']
    }
  },
  { files: ['**/*.{js,mjs}'], ignores: ['**/page/**'], languageOptions: { globals: OF_NODE } },
  { files: ['**/*.js'], ignores: ['**/page/**'], languageOptions: { sourceType: 'commonjs' } },
  { // the page of `backhop web`, and scripts of the site
    files: ['**/page/**'],
    languageOptions: { globals: OF_BROWSERS, sourceType: 'module' },
    rules: {
      eqeqeq: ['error', 'always', { null: 'ignore' }],
      strict: 'off'
    }
  },
  { files: ['**/*.mjs'], rules: { strict: 'off' } }
]
