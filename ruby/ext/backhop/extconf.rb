# frozen_string_literal: true

# Builds the extension of the gem: the core in core/, and backhop_wrap.c, which SWIG made of the bindings.
#
#     gem install backhop -- --with-librabbitmq

require "mkmf"

HELP = <<~TEXT
  What backhop's extconf.rb knows besides mkmf's own options, as `gem install backhop -- OPTION...` gives them:

    --with-librabbitmq            fail where librabbitmq 0.11 or newer, or OpenSSL, is not found
    --without-librabbitmq         build without the worker, Backhop::Worker
    (neither)                     build the worker where both are found, and say so where they are not
    --enable-werror               make the compiler's warnings errors
    --with-pkg-config=COMMAND     which pkg-config finds them
TEXT

ADVICE = <<~TEXT
  install librabbitmq 0.11 or newer, OpenSSL, and pkg-config to find them:
    Debian and Ubuntu  apt-get install librabbitmq-dev libssl-dev pkg-config
    Fedora             dnf install librabbitmq-devel openssl-devel pkgconf
    Homebrew           brew install rabbitmq-c openssl pkgconf
TEXT

OLDEST_LIBRABBITMQ = Gem::Version.new("0.11")

if arg_config("--help")
  $stdout.write(HELP)
  $stdout.flush
  exit!(true) # not exit, which mkmf takes for a failure
end

wrapper = File.join($srcdir, "backhop_wrap.c")
abort "backhop: #{wrapper} is missing: in a checkout, run ruby/tools/stage, which has SWIG make it" unless File.exist?(wrapper)

def librabbitmq?
  version = pkg_config("librabbitmq", "modversion")
  version && Gem::Version.new(version) >= OLDEST_LIBRABBITMQ && pkg_config("librabbitmq") && pkg_config("openssl") &&
    (have_header("rabbitmq-c/amqp.h") || have_header("amqp.h")) && have_header("openssl/ssl.h")
end

version = File.read(File.join($srcdir, "core/VERSION")).strip
$CFLAGS += " -std=c11 -ffp-contract=off -fvisibility=hidden -pthread" # the same delays on every machine
$CPPFLAGS += " -D_GNU_SOURCE -DBH_API= -DBACKHOP_VERSION='\"#{version}\"' -I$(srcdir)/core/include -I$(srcdir)/core/src " \
             "-I$(srcdir)/core/src/worker"
$warnflags = "-Wall -Wextra -Werror" if enable_config("werror", false)
$libs += " -lm"

wanted = with_config("librabbitmq")
with_worker = wanted != false && librabbitmq?
if with_worker
  message "backhop: building the worker, with librabbitmq #{pkg_config("librabbitmq", "modversion")}\n"
elsif wanted
  abort "backhop: librabbitmq was not found: #{ADVICE}or build without the worker: --without-librabbitmq"
elsif wanted.nil?
  message "backhop: librabbitmq was not found: building without Backhop::Worker. To have it, #{ADVICE}"
else
  message "backhop: building without Backhop::Worker, as asked for\n"
end

core = ->(pattern) { Dir[File.join($srcdir, "core/src", pattern)] }
sources = [wrapper, *core["*.c"], *core[with_worker ? "worker/*/*.c" : "worker/none.c"]]
$srcs = sources.map { |path| File.basename(path) }.sort # no two have the same name
$VPATH.concat(sources.map { |path| File.dirname(path).sub($srcdir, "$(srcdir)") }.uniq)

create_makefile "backhop/native"
