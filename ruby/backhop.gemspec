# frozen_string_literal: true

Gem::Specification.new do |spec|
  spec.name = "backhop"
  spec.version = File.read(File.expand_path("VERSION", __dir__)).strip
  spec.summary = "Retries for RabbitMQ consumers: later each time, only to the queue that failed, never lost"
  spec.description = <<~TEXT
    A handler fails; its message goes away, waits in the broker, and comes back: later each time, with jitter, only to the
    queue that failed, unchanged, and never lost. After the last attempt it is parked where a person can look at it. Over
    Bunny, in Kicks and Sneakers workers, or with a worker of its own.
  TEXT
  spec.authors = ["The Backhop authors"]
  spec.license = "MIT"
  spec.required_ruby_version = ">= 3.1"
  spec.extensions = ["ext/backhop/extconf.rb"]
  spec.files = Dir[
    "VERSION", "README.md", "LICENSE", ".yardopts", "backhop.gemspec", "lib/**/*.rb", "sig/**/*.rbs",
    "ext/backhop/*.{rb,c}", "ext/backhop/core/**/*.{c,h}", base: __dir__
  ]
  spec.add_dependency "bigdecimal", ">= 3.1", "< 5" # of Ruby itself up to 3.3
  spec.add_dependency "logger", "~> 1.5" # of Ruby itself up to 3.4
  spec.metadata["rubygems_mfa_required"] = "true"
end
