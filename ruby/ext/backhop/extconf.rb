# frozen_string_literal: true

# Builds the extension of the gem: the core in core/, and backhop_wrap.c, which SWIG made of the
# bindings.
#
#     gem install backhop -- --with-librabbitmq

require "mkmf"

HELP = <<~TEXT
  What backhop's extconf.rb knows besides mkmf's own options, as `gem install backhop -- OPTION...` gives them:

    --with-librabbitmq            fail where librabbitmq 0.11 or newer, or OpenSSL, is not found
    --without-librabbitmq         build without the worker, Backhop::Worker
    (neither)                     build the worker where both are found, and say so where they are not
    --without-command             build without the program `backhop`, which needs the worker, Jansson, libyaml
                                  and libmicrohttpd
    --enable-werror               make the compiler's warnings errors
    --with-pkg-config=COMMAND     which pkg-config finds them

  If BACKHOP_CORE is set, the extension takes the core and the program from that directory, which CMake built with
  librabbitmq: libbackhop.a and backhop. It compiles the wrapper alone. `make test` of the repository does so.
TEXT

ADVICE = <<~TEXT
  install librabbitmq 0.11 or newer, OpenSSL, and pkg-config to find them:
    Debian and Ubuntu  apt-get install librabbitmq-dev libssl-dev pkg-config
    Fedora             dnf install librabbitmq-devel openssl-devel pkgconf
    Homebrew           brew install rabbitmq-c openssl pkgconf
TEXT

OLDEST_LIBRABBITMQ = Gem::Version.new("0.11")

# Modules of pkg-config that the program `backhop` needs, and the oldest version of each.
COMMAND_NEEDS = { "jansson" => "2.13", "yaml-0.1" => "0.2", "libmicrohttpd" => "0.9.71" }.freeze
COMMAND_ADVICE = "install Jansson 2.13 or newer, libyaml and libmicrohttpd (Debian and Ubuntu: libjansson-dev " \
                 "libyaml-dev libmicrohttpd-dev, Fedora: jansson-devel libyaml-devel libmicrohttpd-devel, Homebrew: " \
                 "jansson libyaml libmicrohttpd)\n"

if arg_config("--help")
  $stdout.write(HELP)
  $stdout.flush
  exit!(true) # not exit, which mkmf takes for a failure
end

wrapper = File.join($srcdir, "backhop_wrap.c")
unless File.exist?(wrapper)
  abort "backhop: #{wrapper} is missing: in a checkout, run ruby/tools/stage, which has SWIG make it"
end

def librabbitmq?
  version = pkg_config("librabbitmq", "modversion")
  version && Gem::Version.new(version) >= OLDEST_LIBRABBITMQ && pkg_config("librabbitmq") && pkg_config("openssl") &&
    (have_header("rabbitmq-c/amqp.h") || have_header("amqp.h")) && have_header("openssl/ssl.h")
end

def command_libraries?
  COMMAND_NEEDS.all? do |name, oldest|
    version = pkg_config(name, "modversion")
    version && Gem::Version.new(version) >= Gem::Version.new(oldest)
  end
end

# Rules for the program, which is compiled in one go beside the extension and of its objects, and
# installed into bin/ beside it.
def program_rules(sources)
  asked = ->(what) { COMMAND_NEEDS.keys.map { |name| pkg_config(name, what) }.join(" ") }
  objects = sources.map { |path| "#{File.basename(path, ".c")}.o" }.join(" ")
  <<~MAKE

    PROGRAM_OBJS = #{objects}
    backhop: $(PROGRAM_OBJS)
    \t$(Q) $(CC) $(INCFLAGS) $(CPPFLAGS) #{asked["cflags"]} -I$(srcdir)/command $(CFLAGS) -o $@ \\
    \t  $(srcdir)/command/*.c $(srcdir)/command/*/*.c $(PROGRAM_OBJS) $(ldflags) #{asked["libs"]} #{$libs}
    install-program: backhop
    \t$(MAKEDIRS) $(RUBYARCHDIR)/bin
    \t$(INSTALL_PROG) backhop $(RUBYARCHDIR)/bin
    all: backhop
    install: install-program
  MAKE
end

# Rules for a program that was compiled before.
def copying_rules(built)
  <<~MAKE

    install-program:
    \t$(MAKEDIRS) $(RUBYARCHDIR)/bin
    \t$(INSTALL_PROG) #{built}/backhop $(RUBYARCHDIR)/bin
    install: install-program
  MAKE
end

version = File.read(File.join($srcdir, "VERSION")).strip
$CFLAGS += " -std=c11 -ffp-contract=off -fvisibility=hidden -pthread" # the same delays on every machine
$CPPFLAGS += " -D_GNU_SOURCE -DBH_API= -DBACKHOP_VERSION='\"#{version}\"' -I$(srcdir)/core/include -I$(srcdir)/core/src"
# Hardening, as this code parses untrusted bytes: tools/hardening of the repository checks it.
HARDENING = %w[-fstack-protector-strong -fstack-clash-protection -fcf-protection].select { |flag| try_cflags(flag) }
$CFLAGS += " #{HARDENING.join(" ")} -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2"
# No path of the build machine in the binaries: builds in two directories are alike.
[Dir.pwd, File.expand_path($srcdir)].uniq.each do |path|
  map = "-ffile-prefix-map=#{path}=."
  $CFLAGS += " #{map}" if path.match?(%r{\A[\w./-]+\z}) && try_cflags(map)
end
$LDFLAGS += " -Wl,-z,relro -Wl,-z,now" if RUBY_PLATFORM.include?("linux")
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

# The sources of the core; none if the core was compiled before.
def core_sources(with_worker)
  core = ->(pattern) { Dir[File.join($srcdir, "core/src", pattern)] }
  pure = core["*/*.c"].reject { |path| path.include?("/worker/") }
  [*pure, *core[with_worker ? "worker/*/*.c" : "worker/absent.c"]]
end

built = ENV.fetch("BACKHOP_CORE", "")
abort "backhop: BACKHOP_CORE needs librabbitmq: #{ADVICE}" unless built.empty? || with_worker
# The static library exports the interface, as a shared one does. The extension must not.
$LOCAL_LIBS += " #{built}/libbackhop.a -Wl,--exclude-libs,libbackhop.a" unless built.empty?
sources = built.empty? ? [wrapper, *core_sources(with_worker)] : [wrapper]
$srcs = sources.map { |path| File.basename(path) }.sort
twice = $srcs.tally.key(2) # mkmf puts all objects into one directory
abort "backhop: two sources have one name: #{twice}" if twice
$VPATH.concat(sources.map { |path| File.dirname(path).sub($srcdir, "$(srcdir)") }.uniq)

with_command = built.empty? && with_worker && with_config("command", true) && command_libraries?
if with_command
  message "backhop: building the program `backhop`\n"
elsif with_worker && built.empty?
  message "backhop: building without the program `backhop`. To have it, #{COMMAND_ADVICE}"
end

$cleanfiles << "backhop"
create_makefile "backhop/native"
File.write("Makefile", program_rules(sources - [wrapper]), mode: "a") if with_command
File.write("Makefile", copying_rules(built), mode: "a") unless built.empty?
