# frozen_string_literal: true

require "logger"

module Backhop
  class << self
    # @return [Logger] the logger of workers and retriers. Default: warnings and errors to $stderr
    attr_reader :logger

    # Sets the logger.
    #
    # @param logger [Logger, nil] a Logger, or an object with Logger's add and level; nil logs
    #   nothing
    # @raise [InvalidArgumentError] if the object has no add or no level
    def logger=(logger)
      @logger = logger ? Checks.logger(logger, "Backhop.logger") : Logger.new(nil)
    end

    # Logs at one of Logger's levels. Reports an exception of the logger on $stderr and goes on.
    #
    # Ruby's Logger swallows every exception. So an exception that another thread raises here to end
    # the program is raised after the call.
    # @api private
    def log(level, logger = self.logger, &text)
      Thread.handle_interrupt(SystemExit => :never, SignalException => :never) { logger.add(level, &text) }
    rescue *Outcomes::FAILURES => e
      Kernel.warn("Backhop's logger failed: #{Outcomes.line(e)}")
    end
  end
  self.logger = Logger.new($stderr, level: Logger::WARN, progname: "backhop")
end
