# frozen_string_literal: true

require "program"
require "running"

RSpec.describe Backhop::Worker do
  let(:events) { Running::Events.new }
  let(:nowhere) { "amqp://guest:secret@127.0.0.1:1" }

  def descriptors = Dir.children("/proc/self/fd").size

  it "says what to install where it was built without librabbitmq" do
    skip "built with librabbitmq" if Backhop.build_info.worker?

    expect { described_class.new("amqp://localhost", queue: "orders") }
      .to raise_error(Backhop::NoLibrabbitmqError, /librabbitmq-dev libssl-dev pkg-config.*gem install/)
  end

  it "refuses a drain that is too long, threads that are none and a mode that is none" do
    expect { described_class.new("amqp://localhost", queue: "orders", drain: 7200) }
      .to raise_error(Backhop::InvalidArgumentError, /drain is 7200: give seconds, from 0 to 3600/)
    expect { described_class.new("amqp://localhost", queue: "orders", threads: 0) }
      .to raise_error(Backhop::InvalidArgumentError, /threads is 0: give a whole number/)
  end

  [{}, { queue: "orders", topology: Backhop::Topology.new("orders") },
   { topology: Backhop::Topology.new("orders"), policy: Backhop::Policy.new }].each do |options|
    it "has one queue and one policy: #{options.keys}" do
      expect { described_class.new("amqp://localhost", **options) }
        .to raise_error(Backhop::InvalidArgumentError, /give/)
    end
  end

  context "without a broker", :worker do
    ["", "http://localhost", "amqp://localhost:99999"].each do |uri|
      it "refuses a URI that cannot be read: #{uri.inspect}" do
        expect { described_class.new(uri, queue: "orders") }.to raise_error(Backhop::URIError)
      end
    end

    it "refuses metrics that do not tell the same classes of errors apart, as it counts once for all" do
      metrics = [[IOError, KeyError], [KeyError, IOError], []].map { |types| Backhop::Metrics.new(error_types: types) }
      expect { described_class.new(nowhere, queue: "orders", on_event: metrics.first(2)) }.not_to raise_error
      expect { described_class.new(nowhere, queue: "orders", on_event: metrics) }
        .to raise_error(Backhop::InvalidArgumentError, /different error types.*give each the same/)
    end

    it "refuses to run without a URI, and without a block", :unsigned do
      expect { described_class.new([], queue: "orders") }.to raise_error(Backhop::InvalidArgumentError, /uri is \[\]/)
      expect { described_class.new(nil, queue: "orders") }
        .to raise_error(Backhop::InvalidArgumentError, "uri is nil: give a String, or an Array of Strings")
      worker = described_class.new(nowhere, queue: "orders")
      expect { worker.run }.to raise_error(Backhop::InvalidArgumentError, /give a block/)
      expect { worker.serve }.to raise_error(Backhop::InvalidArgumentError, /give a block/)
    end

    it "R4-7: names no function of C if it is run twice", :unsigned do
      worker = described_class.new(nowhere, queue: "orders", on_event: events)
      running(worker) do
        events.get(:unavailable)
        expect { worker.run { nil } }.to raise_error(Backhop::StateError, /set this before it is run/)
      end
    end

    it "refuses to serve without a fiber scheduler", :unsigned do
      expect { described_class.new(nowhere, queue: "orders").serve { nil } }
        .to raise_error(Backhop::StateError, /scheduler/)
    end

    it "refuses a mode that is none", :unsigned do
      expect {
        described_class.new(nowhere, queue: "orders",
                                     mode: :hope)
      }.to raise_error(Backhop::InvalidArgumentError, /give one of :create/)
    end

    it "holds no password in an error" do
      expect { described_class.new("amqp://guest:secret@localhost:x", queue: "orders") }
        .to raise_error(Backhop::URIError) { |error| expect(error.message).not_to include("secret") }
    end

    it "tells of a broker that is not there, and can be stopped" do
      worker = described_class.new(nowhere, queue: "orders", on_event: events)
      running(worker) do
        event = events.get(:unavailable)
        expect(event.error).to be_a(Backhop::ConnectionFailedError)
        expect(event.delay).to be_positive
        expect(event.to_s).to start_with("unavailable: ").and match(/again in \S+/)
        expect(event.to_s).not_to include("secret")
      end
    end

    %i[run serve].each do |by|
      it "can run again: #{by}" do
        worker = described_class.new(nowhere, queue: "orders", on_event: events)
        3.times do
          running(worker, by: by) { events.get(:unavailable) }
          events.get(:drained)
        end
      end

      it "F13: holds no descriptors after its end: #{by}" do
        make = -> { described_class.new(nowhere, queue: "orders", on_event: events) }
        round = lambda do |worker|
          running(worker, by: by) { events.get(:unavailable) }
          events.get(:drained)
        end
        round.call(make.call) # the runtime opens some descriptors at its first run
        before = descriptors
        workers = Array.new(4) { make.call }
        workers.each(&round)
        # The core's thread closes the last one after its last event.
        Timeout.timeout(PATIENCE) { sleep 0.01 until descriptors <= before }
        workers.each(&round)
      end
    end

    it "refuses to run twice at once, and goes on" do
      worker = described_class.new(nowhere, queue: "orders", on_event: events)
      running(worker) do
        events.get(:unavailable)
        expect { worker.run { nil } }.to raise_error(Backhop::StateError)
        events.get(:unavailable)
      end
      events.get(:drained)
    end

    it "waits for an event to become ready, and does not poll" do
      health = Backhop.const_get(:Health)
      worker = described_class.new(nowhere, queue: "orders")
      allow(health).to receive(:new).and_call_original
      expect { worker.ready(0.4) }.to raise_error(Backhop::WaitTimeoutError, /is not ready after 0\.4 s/)
      expect(health).to have_received(:new).at_most(3).times
    end

    it "refuses a replay where it does not run" do
      expect { described_class.new(nowhere, queue: "orders").replay(1) }
        .to raise_error(Backhop::StateError, /does not run/)
    end

    it "ends where the thread that runs it is told to" do
      worker = described_class.new(nowhere, queue: "orders", on_event: events)
      thread = Thread.new { worker.run { nil } }
      thread.report_on_exception = false
      events.get(:unavailable)
      thread.raise(Interrupt)
      expect { thread.join(PATIENCE) }.to raise_error(Interrupt)
    end

    it "stops where the thread that runs it is killed" do
      worker = described_class.new(nowhere, queue: "orders", on_event: events)
      thread = Thread.new { worker.run { nil } }
      events.get(:unavailable)
      thread.kill
      expect(thread.join(PATIENCE)).to be(thread)
      events.get(:drained)
      running(worker) { events.get(:unavailable) }
    end

    it "ends with its process, whichever thread runs it" do
      output = program(<<~'RUBY')
        Backhop.logger.level = Logger::FATAL
        met = Queue.new
        worker = Backhop::Worker.new("amqp://127.0.0.1:1", queue: "orders", on_event: ->(event) { met << event })
        Thread.new { worker.run { nil } }
        met.pop
        puts "exits"
        exit
      RUBY
      expect(output).to eq("exits\n")
    end

    [NotImplementedError, Interrupt].each do |raised|
      it "ends where on_event raises #{raised} at the end" do
        listener = lambda do |event|
          events.call(event)
          raise raised if event.name == :drained
        end
        worker = described_class.new(nowhere, queue: "orders", on_event: listener)
        thread = Thread.new { worker.run { nil } }
        thread.report_on_exception = false
        events.get(:unavailable)
        worker.stop
        ended = begin
          thread.join(PATIENCE)
        rescue Interrupt # if it was the run's own thread that took the event
          thread
        end
        expect(ended).to be(thread)
      end
    end

    %i[run serve].each do |by|
      it "lets the other fibers of a scheduler run: #{by}" do
        worker = described_class.new(nowhere, queue: "orders", on_event: events)
        ticks = 0
        Async do |task|
          ticking = task.async do
            loop do
              sleep 0.01
              worker.stop if (ticks += 1) == 5
            end
          end
          worker.public_send(by) { nil }
          ticking.stop
        end
        expect(ticks).to be >= 5
      end
    end

    it "stops at once in its finalizer, where nothing holds it any more" do
      worker = described_class.new(nowhere, queue: "orders", on_event: events)
      native = worker.instance_variable_get(:@native)
      native.start
      10.times { GC.start }
      expect(native.stop(0)).to eq(0)
      worker = native = nil # rubocop:disable Lint/UselessAssignment
      expect { 3.times { GC.start } }.not_to raise_error
    end

    it "says what to do in a forked child, where a new worker works" do
      program(<<~'RUBY')
        Backhop.logger.level = Logger::FATAL
        met = Queue.new
        meeting = ->(event) { met << event.name }
        make = -> { Backhop::Worker.new("amqp://127.0.0.1:1", queue: "orders", on_event: meeting) }
        worker = make.call
        thread = Thread.new { worker.run { nil } }
        met.pop
        child = fork do
          [-> { worker.run { nil } }, -> { worker.stop }, -> { worker.replay(1) }].each do |call|
            call.call
            abort "no error"
          rescue Backhop::ForkedError => error
            error.message.include?("make a new") or abort error.message
          end
          Backhop::Policy.new(jitter: :none).delay(1) == 1 or abort "what has no worker does not work"
          met.clear
          again = make.call
          running = Thread.new { again.run { nil } }
          met.pop == :unavailable or abort "the new worker does not work"
          again.stop
          running.join
          worker = thread = nil
          GC.start
        end
        Process.wait(child)
        status = $?
        worker.stop
        thread.join
        exit(status.success?)
      RUBY
    end

    it "lets a forked child leave the run" do
      output = program(<<~'RUBY')
        Backhop.logger.level = Logger::FATAL
        met = Queue.new
        worker = Backhop::Worker.new("amqp://127.0.0.1:1", queue: "orders", on_event: ->(event) { met << event })
        child = nil
        Signal.trap("USR1") { (child = fork) or exit }
        Thread.new do
          met.pop
          Process.kill("USR1", Process.pid)
          sleep 0.01 until child
          Process.wait(child)
          puts $?.success?
          worker.stop
        end
        worker.run { nil }
      RUBY
      expect(output).to eq("true\n")
    end

    it "gives a forked child its signals back" do
      output = program(<<~'RUBY')
        Backhop.logger.level = Logger::FATAL
        met = Queue.new
        worker = Backhop::Worker.new("amqp://127.0.0.1:1", queue: "orders", on_event: ->(event) { met << event })
        Thread.new do
          Thread.current.report_on_exception = false # in the child, where TERM ends it
          met.pop # the traps are there
          child = fork { sleep }
          Process.kill("TERM", child)
          Process.wait(child)
          puts $?.termsig
          worker.stop
        end
        worker.run { nil }
      RUBY
      expect(output).to eq("#{Signal.list["TERM"]}\n")
    end
  end
end
