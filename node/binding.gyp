{
  "variables": {
    "c": [
      "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wdouble-promotion",
      "-Wshadow", "-Wundef", "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wold-style-definition", "-Wpointer-arith",
      "-Wcast-align", "-Wcast-qual", "-Wwrite-strings", "-Wformat=2", "-Wvla",
      "<!@(node -p \"process.env.BACKHOP_WERROR ? '-Werror' : '-Wall'\")"
    ]
  },
  "target_defaults": {
    "cflags": [
      "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-pthread",
      "-fstack-protector-strong", "-fstack-clash-protection", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"
    ],
    "conditions": [
      ["OS == 'linux'", { "ldflags": ["-Wl,-z,relro", "-Wl,-z,now"] }],
      ["target_arch == 'x64'", { "cflags": ["-fcf-protection"] }]
    ]
  },
  "targets": [
    {
      "target_name": "backhop",
      "include_dirs": ["core/include", "generated/node-addon-api"],
      "cflags!": ["-fno-exceptions"],
      "cflags_cc!": ["-fno-exceptions"],
      "cflags_cc": ["-std=c++17", "-fexceptions"],
      "defines": ["BH_API=", "NAPI_VERSION=8", "NODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS"],
      "sources": ["generated/backhop_wrap.cpp", "native/watch.cpp"],
      # nodelete: a lookup of a host that nobody waits for any more has a thread that still runs.
      "conditions": [
        ["OS == 'linux'", { "ldflags": ["-pthread", "-Wl,-z,nodelete"] }],
        ["'<!(node librabbitmq.js core)' == ''", { "dependencies": ["pure", "worker"] }, {
          "copies": [{ "destination": "<(PRODUCT_DIR)", "files": ["<!(node librabbitmq.js core)/backhop"] }]
        }]
      ],
      "libraries": ["<!@(node librabbitmq.js libs)"]
    }
  ],
  "conditions": [
    ["'<!(node librabbitmq.js core)' == ''", {
      "targets": [
        {
          "target_name": "pure",
          "type": "static_library",
          "include_dirs": ["core/include", "core/src"],
          "cflags_c": ["<@(c)"],
          "defines": ["BH_API=", "BACKHOP_VERSION=\"<!(node -p \"require('./package.json').version\")\""],
          "sources": ["<!@(node librabbitmq.js pure)"]
        },
        {
          "target_name": "worker",
          "type": "static_library",
          "include_dirs!": ["<(node_root_dir)/include/node"],
          "include_dirs": ["core/include", "core/src"],
          "cflags_c": ["<@(c)", "<!@(node librabbitmq.js cflags)"],
          "defines": ["BH_API=", "_GNU_SOURCE"],
          "sources": ["<!@(node librabbitmq.js worker)"]
        }
      ]
    }],
    ["'<!(node librabbitmq.js has-command)' == 'yes'", {
      "targets": [
        {
          "target_name": "command",
          "product_name": "backhop",
          "type": "executable",
          "dependencies": ["pure", "worker"],
          "include_dirs!": ["<(node_root_dir)/include/node"],
          "include_dirs": ["core/include", "core/src", "command"],
          "cflags_c": ["<@(c)", "-Wno-cast-qual", "<!@(node librabbitmq.js command-cflags)"],
          "defines": ["BH_API=", "_GNU_SOURCE"],
          "sources": ["<!@(node librabbitmq.js command)"],
          "libraries": ["<!@(node librabbitmq.js command-libs)"]
        }
      ]
    }]
  ]
}
