# frozen_string_literal: true

require "async"
require "timeout"

# Runs workers, for the specs, and waits for their events.
module Running
  # Things that came in, in order; waiting for them ends.
  class Inbox
    def initialize
      @queue = Queue.new
    end

    def call(item) = @queue << item

    def get = Timeout.timeout(PATIENCE, Timeout::Error, "nothing came") { @queue.pop }

    def empty? = @queue.empty?
  end

  # A handler that keeps its messages, and raises the given errors.
  class Handler < Inbox
    def initialize(*failures)
      super()
      @failures = failures
    end

    def call(message)
      message.body # read here, while the worker runs, as is the rest
      message.history
      message.redelivered?
      super
      failure = @failures.shift
      raise failure if failure
    end

    def to_proc = method(:call).to_proc
  end

  # The events of a worker.
  class Events < Inbox
    # The next one of this name.
    def get(name)
      event = super() until event&.name == name
      event
    end
  end

  # Runs a worker in a thread while the block runs, and stops it.
  def running(worker, handler = ->(_) {}, by: :run)
    thread = Thread.new { by == :run ? worker.run(&handler) : Async { worker.serve(&handler) }.wait }
    thread.report_on_exception = false
    yield
  ensure
    worker.stop
    raise "the worker does not end" unless thread.join(PATIENCE)
  end
end

RSpec.configure { |config| config.include Running }
