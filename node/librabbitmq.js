'use strict'
// Answers binding.gyp: which sources of the core to compile, and where librabbitmq is, which the
// worker needs. Also the libraries of the program `backhop`.
//
//   node librabbitmq.js pure | worker | cflags | libs | has-command | command | command-cflags |
//                       command-libs | core
//
// Without librabbitmq and OpenSSL, or with BACKHOP_WITHOUT_LIBRABBITMQ set, the addon has no
// worker, and there is no program. Without Jansson, libyaml and libmicrohttpd there is no program
// either.
//
// Node exports its own OpenSSL. An addon that names a shared OpenSSL still gets Node's functions.
// So both must be OpenSSL 3; a shared one that is older is not used. A binary to hand on has its
// own OpenSSL inside, and does not export it. BACKHOP_STATIC is then the directory of the
// librabbitmq.a to link with it, and of libmicrohttpd/lib/libmicrohttpd.a.

// If BACKHOP_CORE is set, the addon takes the core and the program from that directory, which CMake
// built with librabbitmq: libbackhop.a and backhop. Then the wrapper alone is compiled. `make test`
// of the repository does so.

const { execFileSync } = require('node:child_process')
const { readdirSync } = require('node:fs')
const path = require('node:path')

const NEEDED = ['librabbitmq >= 0.11', 'openssl >= 3']

const NEEDED_BY_COMMAND = [...NEEDED, 'jansson >= 2.13', 'yaml-0.1', 'libmicrohttpd >= 0.9.71']

function pkgConfig (option, modules = NEEDED) {
  return execFileSync('pkg-config', [option, ...modules], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
}

function isThere (modules = NEEDED) {
  if (process.env.BACKHOP_WITHOUT_LIBRABBITMQ) return false
  try {
    pkgConfig('--exists', modules)
    return true
  } catch {
    return false
  }
}

const CORE = process.env.BACKHOP_CORE

const ANSWERS = {
  core: () => CORE ?? '',
  pure: () => sources('core/src', 'worker'),
  worker: () => (isThere() ? sources('core/src/worker', 'absent.c') : 'core/src/worker/absent.c'),
  cflags: () => (isThere() ? pkgConfig('--cflags') : ''),
  libs,
  'has-command': () => (!CORE && isThere(NEEDED_BY_COMMAND) ? 'yes' : 'no'),
  command: () => sources('command'),
  'command-cflags': () => pkgConfig('--cflags', NEEDED_BY_COMMAND),
  'command-libs': commandLibs
}

// The C sources below a directory, one path per line, without those below or named `without`.
function sources (directory, without) {
  const entries = readdirSync(path.join(__dirname, directory), { withFileTypes: true })
  return entries.filter(({ name }) => name !== without).map(entry => {
    const name = path.posix.join(directory, entry.name)
    return entry.isDirectory() ? sources(name) : name
  }).join('\n').split('\n').filter(name => name.endsWith('.c')).join('\n')
}

function libs () {
  if (CORE) return `${CORE}/libbackhop.a -Wl,--exclude-libs,libbackhop.a ${pkgConfig('--libs')} -lm`
  if (!isThere()) return ''
  const directory = process.env.BACKHOP_STATIC
  if (!directory) return pkgConfig('--libs')
  return `${directory}/librabbitmq.a -l:libssl.a -l:libcrypto.a -ldl -Wl,--exclude-libs,ALL -Wl,--gc-sections`
}

function commandLibs () {
  const directory = process.env.BACKHOP_STATIC
  if (!directory) return `${pkgConfig('--libs', NEEDED_BY_COMMAND)} -lm`
  const ours = `${directory}/librabbitmq.a ${directory}/libmicrohttpd/lib/libmicrohttpd.a`
  return `${ours} -l:libssl.a -l:libcrypto.a -l:libjansson.a -l:libyaml.a -lm -ldl -Wl,--gc-sections`
}

process.stdout.write(ANSWERS[process.argv[2]]().trim())
