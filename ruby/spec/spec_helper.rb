# frozen_string_literal: true

require "backhop"
require "timeout"

require "durations"

# A warning about Backhop fails the example that met it.
Warning.extend(
  Module.new do
    def warn(message, **) = message.include?("backhop") ? raise(message) : super
  end
)

# Seconds that no example takes which passes.
PATIENCE = Integer(ENV.fetch("BACKHOP_PATIENCE", 120))

Backhop.logger = Logger.new(File::NULL)

RSpec.configure do |config|
  config.disable_monkey_patching!
  config.raise_errors_for_deprecations!
  config.order = :random
  config.filter_run_excluding(:real) if ENV["BACKHOP_MODEL_URL"] # what the model of RabbitMQ does not have

  # The backtrace of Timeout::Error shows the place of the wait.
  config.around { |example| Timeout.timeout(2 * PATIENCE) { example.run } }
  config.before(:each, :worker) { skip "built without librabbitmq" unless Backhop.build_info.worker? }
end
