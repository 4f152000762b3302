# frozen_string_literal: true

require "program"
require "running"
require_relative "support"

RSpec.describe Backhop::Worker, :worker, skip: NEEDS_BROKER do
  include Live

  let(:fast) { Backhop::Policy.new(kind: :fixed, initial: 0.1, jitter: :none, max_attempts: 3) }
  let(:events) { Running::Events.new }
  let(:name) { broker.queue }

  def worker(queue = name, uri: URL, policy: fast, **options)
    described_class.new(uri, queue: queue, policy: policy, on_event: events, connect_timeout: PATIENCE / 2, **options)
  end

  it "is good with a collection at every allocation, and where objects move" do
    4.times { |number| broker.publish("body #{number}", name, headers: { "n" => number, "deep" => [{ "a" => [1] }] }) }
    output = program(<<~'RUBY', URL, name)
      policy = Backhop::Policy.new(kind: :fixed, initial: 0.1, jitter: :none, max_attempts: 3)
      held = Queue.new
      stories = Queue.new # printed in the end: Ruby 3.1's puts may fail if a compaction runs beside it
      worker = Backhop::Worker.new(ARGV[0], queue: ARGV[1], policy: policy, threads: 2, retry_events: true,
                                            connect_timeout: 60,
                                            on_event: ->(event) { GC.stress = event.name == :connected })
      worker.run do |message|
        held << message
        stories << "#{message.body} #{message.headers["n"]} #{message.attempt}"
        GC.compact
        worker.stop if held.size == 8
      rescue StandardError => e
        stories << e.full_message
        raise
      else
        raise "507" if message.attempt == 1
      end
      GC.stress = false
      3.times { GC.compact }
      puts Array.new(stories.size) { stories.pop }
      puts Array.new(8) { held.pop.body }.sort
    RUBY
    stories = [1, 2].flat_map { |attempt| Array.new(4) { |number| "body #{number} #{number} #{attempt}" } }
    expect(output.lines(chomp: true)).to match_array(stories + (Array.new(4) { |number| "body #{number}" } * 2))
  end

  it "keeps properties and headers, with the types that Bunny cannot tell" do
    headers = {
      "text" => "grün", "binary" => "\xFF\x00".b, "minus" => -4711, "true" => true, "nothing" => nil, "real" => 1.5,
      "single" => AMQ::Protocol::Float32Bit.new(0.25), "moment" => Time.utc(2026), "list" => [1, { "a" => [] }],
      "empty" => {}
    }
    properties = { content_type: "text/plain", priority: 3, correlation_id: "c", message_id: "1",
                   timestamp: 1_767_323_045, type: "kind", app_id: "shop" }
    broker.publish(
      "body", name, headers: headers, delivery_mode: 2, user_id: "guest", expiration: "600000", **properties
    )
    handler = Running::Handler.new(IOError.new("507 queue is full"))
    first = second = nil
    running(worker, handler) do
      first = handler.get
      second = handler.get
    end
    expect(second.headers.slice(*headers.keys)).to eq(first.headers)
    types = [first, second].map { |each| headers.keys.to_h { |key| [key, each.delivery.header_type(key)] } }
    expect(types.last).to eq(types.first).and include("single" => :float, "real" => :double, "moment" => :timestamp)
    expect(second.delivery.properties).to eq(properties.merge(delivery_mode: 2))
    expect(second.headers).to include("backhop-user-id" => "guest", "backhop-expiration" => "600000")
  end

  ageing = Backhop::Policy.new(initial: 60, max_age: 1)
  { "exhausted" => nil, "permanent" => nil, "too-old" => ageing }.each do |why, policy|
    it "tells of what it parks with the exception where it hears of no retry: #{why}" do
      error = why == "permanent" ? Backhop::Park.new("mine") : KeyError.new("mine")
      broker.publish("body", name)
      running(worker(policy: policy || fast), ->(_) { raise error }) do
        expect(events.get(:parked)).to have_attributes(reason: why, error: error)
      end
    end
  end

  it "parks a class in never, and drops by Drop" do
    handler = Running::Handler.new(FloatDomainError.new("no number"), Backhop::Drop.new)
    dropping = worker(never: [RangeError], threads: 1, retry_events: true)
    running(dropping, handler) do
      broker.publish("never", name)
      events.get(:parked)
      broker.publish("drop", name)
      2.times { handler.get }
      events.get(:dropped)
    end
    kept = dropping.instance_variable_get(:@handling).instance_variable_get(:@failures)
    expect(kept).to be_empty # no further event is about these messages
    expect(broker.get("#{name}.parked").last).to eq("never")
    expect([broker.count(name), broker.count("#{name}.parked")]).to eq([0, 0])
  end

  it "takes a RetryAfter that has passed as none" do
    broker.publish("body", name)
    handler = Running::Handler.new(Backhop::RetryAfter.new(Time.now - 1))
    running(worker, handler) do
      handler.get
      expect(handler.get.last_delay).to eq(0.1)
    end
  end

  it "runs as many handlers at once as it has threads, and other threads beside them" do
    8.times { broker.publish("body", name) }
    inside = Running::Inbox.new
    go = Queue.new
    running(worker(threads: 4), ->(_) { inside.call(1) && go.pop }) do
      2.times do
        4.times { inside.get }
        expect(inside).to be_empty
        4.times { go << 1 }
      end
    end
  end

  it "runs as many fibers at once as it may prefetch" do
    6.times { broker.publish("body", name) }
    at_once = most = done = 0
    serving = worker(prefetch: 3)
    handler = lambda do |_|
      most = [most, at_once += 1].max
      sleep 0.01 until most == 3
      at_once -= 1
      serving.stop if (done += 1) == 6
    end
    Timeout.timeout(PATIENCE) { Async { serving.serve(&handler) }.wait }
    expect([done, most]).to eq([6, 3])
  end

  it "F2: connects again, and does not handle again what was not settled" do
    broker.publish("body", name, message_id: "order 7")
    redelivered = Running::Inbox.new
    go = Queue.new
    handler = lambda do |message|
      redelivered.call([message.redelivered?, message.body])
      go.pop
    end
    running(worker(uri: proxy.url, threads: 1), handler) do
      expect(redelivered.get).to eq([false, "body"])
      proxy.cut
      expect(events.get(:disconnected).error).to be_a(Backhop::ConnectionFailedError)
      2.times { go << 1 }
      events.get(:connected)
      broker.publish("next", name)
      expect(redelivered.get).to eq([false, "next"])
    end
    proxy.close
  end

  %i[run serve].each do |by|
    it "names the queue that is missing, and ends: #{by}" do
      expect { running(worker("test-no-such-queue"), by: by) { events.get(:drained) } }
        .to raise_error(Backhop::MissingError, /test-no-such-queue/)
    end
  end

  it "has a state, and can be awaited" do
    worker = worker()
    expect(worker.state).to eq(:stopped)
    expect { worker.ready("50ms") }
      .to raise_error(Backhop::WaitTimeoutError, "the worker is not ready after 0.05 s; its state is stopped")
    running(worker) do
      expect(worker.ready(PATIENCE)).to be(worker)
      expect(worker.state).to eq(:ready)
      expect(worker.state_reason).to include("RabbitMQ")
    end
    expect(worker.state).to eq(:stopped)
    expect { worker.ready }
      .to raise_error(Backhop::StateError, /\Athe worker has stopped and cannot become ready; run it/)
  end

  it "raises to who awaits it why it cannot start" do
    missing = worker("test-no-such-queue")
    expect { running(missing) { events.get(:drained) } }.to raise_error(Backhop::MissingError)
    expect { missing.ready }.to raise_error(Backhop::MissingError, /test-no-such-queue/)
  end

  it "waits for the queue that is missing where it is not to fail fast" do
    late = "test-#{SecureRandom.hex}"
    running(worker(late, fail_fast: false)) do
      expect(events.get(:unavailable)).to have_attributes(error: Backhop::MissingError, text: /#{late}/)
      broker.queue(name: late)
      events.get(:connected)
    end
  end

  it "W8: uses a new secret at its next login" do
    rotated = worker(fail_fast: false, uri: URL.sub("guest:guest", "guest:wrong"))
    running(rotated) do
      expect(events.get(:unavailable)).to have_attributes(error: Backhop::AccessError)
      expect { rotated.set_credentials("", "guest") }.to raise_error(Backhop::InvalidArgumentError)
      expect { rotated.set_credentials("guest", 42) }.to raise_error(Backhop::InvalidArgumentError, /\A(?!.*42)/)
      rotated.set_credentials("guest", "guest")
      events.get(:connected)
    end
  end

  it "tells which connection an event is about" do
    running(worker(mode: :none, uri: ["amqp://127.0.0.1:1", URL])) do
      expect(events.get(:unavailable)).to have_attributes(connection: "consume", host: "127.0.0.1:1")
      broker_host = URI(URL).then { |uri| "#{uri.host}:#{uri.port}" }
      expect(events.get(:connected)).to have_attributes(connection: "consume", host: broker_host)
    end
    expect(events.get(:drained)).to have_attributes(connection: nil, host: nil)
  end

  it "gives a message back that is not settled in time" do
    broker.publish("body", name)
    taken = Running::Inbox.new
    go = Queue.new
    running(worker(drain: 0), ->(message) { taken.call(message) && go.pop }) { taken.get }
    expect(broker.get(name).last).to eq("body")
    go << 1
    expect { until_true { log.string.include?("its handler ended after the worker had stopped") } }.not_to raise_error
  end

  unusual = Class.new(Exception) # rubocop:disable Lint/InheritException
  { "calls Thread.exit" => -> { Thread.exit }, "throws to an outer tag" => -> { throw :none_such },
    "raises a subclass of Exception" => -> { raise unusual, "no" } }.each do |what, ending|
    it "RT3: counts an attempt where a handler #{what}, and goes on with as many threads" do
      taken = Running::Inbox.new
      handler = lambda do |message|
        taken.call([message.body, message.attempt])
        ending.call if message.body == "bad" && message.attempt == 1
      end
      running(worker(threads: 1), handler) do
        %w[bad good].each { |body| broker.publish(body, name) }
        expect(Array.new(3) { taken.get }).to contain_exactly(["bad", 1], ["bad", 2], ["good", 1])
      end
      expect(broker.count(name)).to eq(0)
    end
  end

  it "RT7: counts no attempt where the reactor that serves is stopped" do
    broker.publish("body", name)
    taken = Running::Inbox.new
    go = Queue.new
    worker = worker(prefetch: 20, drain: 0)
    thread = Thread.new do
      Async do |task|
        task.async { worker.serve { |message| taken.call(message.attempt) && sleep(PATIENCE) } }
        go.pop
        task.reactor.stop
      end
    end
    expect(taken.get).to eq(1)
    go << 1
    expect(thread.join(PATIENCE)).to be(thread)
    expect(broker.get(name)[1][:headers] || {}).not_to include("backhop-attempts")
    expect(broker.count("#{name}.parked").to_i).to eq(0)
  end

  it "leaves nothing of a run to the threads of the one before" do
    runs = 5
    worker = worker()
    met = []
    done = Queue.new
    runs.times do |number|
      8.times { broker.publish("body", name) }
      worker.run do
        met << number
        done << number
        worker.stop if done.size == 8 * (number + 1)
      end
      until_true { broker.count(name).zero? }
    end
    expect(met).to eq((0...runs).flat_map { |number| [number] * 8 })
  end

  it "ends with its process, also where handlers are at work" do
    broker.publish("body", name)
    output = program(<<~'RUBY', URL, name)
      worker = Backhop::Worker.new(ARGV[0], queue: ARGV[1], connect_timeout: 60, drain: 3600)
      begun = Queue.new
      Thread.new do
        worker.run do
          begun << 1
          sleep
        end
      end
      begun.pop
      puts "exits"
      exit
    RUBY
    expect(output).to start_with("exits\n").and include("drained")
    expect(broker.get(name).last).to eq("body")
  end

  it "is outlived by its messages" do
    broker.publish("body", name)
    inbox = Running::Inbox.new
    message = nil
    running(worker, inbox.method(:call)) { message = inbox.get }
    message.history # the worker is what reads it
    message.instance_variable_set(:@worker, nil)
    3.times { GC.start }
    expect(message).to have_attributes(body: "body", attempt: 1)
  end

  %w[INT TERM].each do |signal|
    it "drains on SIG#{signal}, and gives the trap back" do
      broker.publish("body", name)
      output = program(<<~'RUBY', URL, name) do |io|
        worker = Backhop::Worker.new(ARGV[0], queue: ARGV[1], connect_timeout: 60,
                                              on_event: ->(event) { puts "#{event.name}\n" })
        before = %w[INT TERM].map { |each| Signal.trap(each, "IGNORE").tap { |old| Signal.trap(each, old) } }
        worker.run do
          puts "begun\n"
          $stdin.gets
          puts "ended\n"
        end
        after = %w[INT TERM].map { |each| Signal.trap(each, "IGNORE") }
        puts "returned" if before == after
      RUBY
        await(io, "begun")
        Process.kill(signal, io.pid)
        io.puts("go on")
      end
      expect(output.lines(chomp: true) - ["connected"]).to eq(%w[ended succeeded drained returned])
      expect(broker.count(name)).to eq(0)
    end
  end

  it "stops at once on the second signal" do
    broker.publish("body", name)
    program(<<~'RUBY', URL, name) do |io|
      trap("TERM") { nil } # one that comes after the end
      worker = Backhop::Worker.new(ARGV[0], queue: ARGV[1], connect_timeout: 60, drain: 3600,
                                            on_event: ->(event) { puts "#{event.name}\n" })
      worker.run do
        puts "begun\n"
        sleep
      end
    RUBY
      await(io, "begun")
      Timeout.timeout(PATIENCE) do
        line = nil
        until line == "drained\n" # two signals at once can arrive as one
          Process.kill("TERM", io.pid)
          line = io.gets if io.wait_readable(0.1)
        end
      end
    end
    expect(broker.get(name).last).to eq("body")
  end

  it "works in each child of a preforking server" do
    4.times { broker.publish("body", name) }
    broker.publish("", name)
    output = program(<<~'RUBY', URL, name)
      shared = Backhop::Worker.new(ARGV[0], queue: ARGV[1])
      children = Array.new(2) do
        fork do
          begin
            shared.run { nil }
          rescue Backhop::ForkedError
            puts "forked\n"
          end
          worker = Backhop::Worker.new(ARGV[0], queue: ARGV[1], connect_timeout: 60, prefetch: 1, threads: 1)
          worker.run do
            puts "handled\n"
            worker.stop
          end
        end
      end
      statuses = children.map { |child| Process.wait2(child).last }
      exit(statuses.all?(&:success?))
    RUBY
    expect(output.lines(chomp: true).tally).to eq("forked" => 2, "handled" => 2)
    until_true { broker.count(name) == 3 }
  end

  it "verifies the broker by TLS", :real do
    skip "there is no broker with TLS" unless ENV["BACKHOP_CA_FILE"]

    uri = ENV.fetch("AMQPS_URL")
    expect { running(worker(uri: uri)) { events.get(:drained) } }.to raise_error(Backhop::TLSError)
    expect { running(worker(uri: uri, ca_file: ENV["BACKHOP_CA_FILE"], mode: :verify)) { events.get(:drained) } }
      .to raise_error(Backhop::MissingError), "TLS is there, the topology is not"
    handler = Running::Handler.new
    broker.publish("body", name)
    running(worker(uri: uri, ca_file: ENV["BACKHOP_CA_FILE"]), handler) { expect(handler.get.body).to eq("body") }
  end

  it "trusts whom OpenSSL's variables name", :real do
    skip "there is no broker with TLS" unless ENV["BACKHOP_CA_FILE"]

    before = ENV.fetch("SSL_CERT_FILE", nil)
    ENV["SSL_CERT_FILE"] = ENV["BACKHOP_CA_FILE"]
    running(worker(uri: ENV.fetch("AMQPS_URL"))) { events.get(:connected) }
  ensure
    ENV["SSL_CERT_FILE"] = before
  end

  it "logs its events" do
    running(worker) { events.get(:connected) }
    lines = log.string.lines.map { |line| line[/(\w+) -- .*: (\w+): /] && [Regexp.last_match(1), Regexp.last_match(2)] }
    expect(lines).to eq([%w[INFO connected], %w[INFO drained]])
  end

  it "goes on where a callback fails" do
    broker.publish("body", name)
    handler = Running::Handler.new
    failing = described_class.new(URL, queue: name, policy: fast, on_event: ->(_) { raise KeyError, "no" })
    running(failing, handler) { expect(handler.get.body).to eq("body") }
    expect(log.string).to include("a listener failed at connected of \"#{name}\": KeyError: no")
  end
end
