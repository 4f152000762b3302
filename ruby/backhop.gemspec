# frozen_string_literal: true

# In a checkout `gem build` has tools/stage bring the core and SWIG's wrapper, which a tree that is
# made already has.
version = %w[ext/backhop/VERSION ../VERSION].map { |path| File.expand_path(path, __dir__) }
if File.exist?(version.last) && File.basename($PROGRAM_NAME).start_with?("gem")
  system(File.expand_path("tools/stage", __dir__), "--here", exception: true)
end

Gem::Specification.new do |spec|
  spec.name = "backhop"
  spec.version = File.read(version.find { |path| File.exist?(path) }).strip
  spec.summary = "Retries for RabbitMQ consumers: later each time, only to the queue that failed, never lost"
  spec.description = <<~TEXT
    A handler fails; its message goes away, waits in the broker, and comes back: later each time, with jitter, only to
    the queue that failed, unchanged, and never lost. After the last attempt it is parked where a person can look at
    it. Over Bunny, in Kicks and Sneakers workers, or with a worker of its own.
  TEXT
  spec.authors = ["The Backhop authors"]
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.1"
  spec.extensions = ["ext/backhop/extconf.rb"]
  spec.bindir = "exe"
  spec.executables = ["backhop"]
  spec.files = Dir[
    "README.md", "LICENSE", ".yardopts", "backhop.gemspec", "exe/*", "lib/**/*.rb", "sig/**/*.rbs",
    "ext/backhop/*.{rb,c}", "ext/backhop/VERSION", "ext/backhop/{core,command}/**/*.{c,h}", base: __dir__
  ]
  spec.add_dependency "bigdecimal", ">= 3.1", "< 5" # of Ruby itself up to 3.3
  spec.add_dependency "logger", "~> 1.5" # of Ruby itself up to 3.4
  spec.add_development_dependency "bunny", ">= 2.19", "< 4" # as Backhop::Bunny::VERSIONS, for who has it
  spec.requirements << "bunny >= 2.19, < 4, for Backhop::Bunny and Backhop::Kicks"
  spec.requirements << "librabbitmq >= 0.11 and OpenSSL, for Backhop::Worker"
  spec.requirements << "these, Jansson >= 2.13, libyaml and libmicrohttpd >= 0.9.71, for the program `backhop`"
  spec.metadata["rubygems_mfa_required"] = "true"
end
