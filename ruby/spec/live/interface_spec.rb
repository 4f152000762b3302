# frozen_string_literal: true

require "spec_helper"
require "program"
require "running"
require_relative "support"

# The parts that are the same everywhere, and how a retrier consumes by itself.
RSpec.describe "One interface", skip: NEEDS_BROKER do
  include Live

  let(:queue) { broker.queue }
  let(:parked) { "#{queue}.parked" }
  let(:options) { { policy: QUICK, namespace: namespace } }

  # Raises once, and keeps what a message says each time.
  recorder = Class.new do
    const_set(:SAID, %i[
      body queue headers content_type content_encoding correlation_id reply_to type app_id timestamp priority message_id id
      attempt max_attempts last_attempt? last_error exchange routing_key
    ].freeze)

    attr_reader :told

    def initialize
      @told = Queue.new
    end

    def call(message)
      said = self.class::SAID.to_h { |name| [name, message.public_send(name)] }
      said[:headers] = said[:headers].except("backhop-first-failure", "backhop-due").reject { |name, _| name.start_with?("x-") }
      @told << said.merge(failed: !message.first_failure.nil?, deaths: message.deaths.class, history: message.history.attempts)
      raise IOError, "507" if message.attempt == 1
    end

    def get = Timeout.timeout(PATIENCE) { [@told.pop, @told.pop] }
  end

  it "hands the same message to the same handler over Bunny, Kicks, a worker, and in a rehearsal" do
    headers = { "tenant" => "acme", "list" => [1, "two"] }
    properties = { content_type: "text/plain", content_encoding: "utf-8", correlation_id: "c", reply_to: "you", type: "kind",
                   app_id: "shop", timestamp: 1_767_323_045, priority: 3, message_id: "m" }
    ways = {
      subscribe: lambda do |handler, take|
        connected(BunnyClient, URL, queue, nil, **options) do |client|
          subscription = client.retrier.subscribe(handler)
          take.call.tap { subscription.cancel }
        end
      end,
      worker: lambda do |handler, take|
        running(Backhop::Worker.new(URL, queue: queue, **options, connect_timeout: PATIENCE / 2), handler.method(:call), &take)
      end,
      rehearse: lambda do |handler, take|
        Backhop::Testing.rehearse("body", queue: queue, policy: QUICK, headers: headers, properties: properties) do |message|
          handler.call(message)
        end
        take.call
      end
    }
    CLIENTS.each { |name, client|
      ways[name] = lambda { |handler, take|
        consuming(client, URL, queue, handler, **options) {
          take.call
        }
      }
    }
    ways.delete(:worker) unless Backhop.build_info.worker?
    said = ways.transform_values do |way|
      handler = recorder.new
      got = nil
      broker.publish("body", queue, headers: headers, **properties)
      broker.channel.queue_purge(queue) if way.equal?(ways[:rehearse])
      way.call(handler, -> { got = handler.get })
      until_true { broker.count(queue).zero? }
      got
    end
    expect(said).to eq(said.transform_values { said[:rehearse] })
    expect(said[:rehearse].last).to include(attempt: 2, last_error: "IOError: 507", id: "m", timestamp: Time.at(1_767_323_045))
  end

  it "subscribes, declares, and goes on after a closed channel and a deleted queue; and ends" do
    work = "#{namespace}.work"
    handler = Handler.new(RuntimeError.new("no"))
    connected(BunnyClient, URL, work, nil, **options, work_queue: :quorum) do |client|
      subscription = client.retrier.subscribe(handler, prefetch: 5, threads: 2)
      broker.publish("one", work)
      handler.saw(2)
      expect(subscription.channel).not_to equal(client.channel)
      first = subscription.channel
      first.basic_ack(4711) # closes the channel: an unknown delivery tag
      until_true { !subscription.channel.equal?(first) && subscription.channel.open? }
      broker.publish("two", work)
      handler.saw(3)
      until_true { broker.count(work).zero? }
      broker.channel.queue_delete(work)
      until_true { broker.count(work) }
      broker.insist("three", work)
      handler.saw(4)
      expect(subscription.wait(0)).to be(false)
      subscription.cancel
      expect(subscription.wait(1)).to be(true)
      broker.publish("four", work)
      until_true { broker.count(work) == 1 }
      expect(handler.messages.map(&:body)).to eq(%w[one one two three])
      until_true { Thread.list.none? { |thread| thread.name == "backhop-#{work}" } }
      client.retrier.drain(PATIENCE)
      broker.delete(client.retrier.topology)
    end
  end

  it "goes on after a lost connection, with one consumer, and Bunny has nothing to complain of" do
    handler = Handler.new
    bunny = StringIO.new
    given = { **options, bunny: { logger: Logger.new(bunny) } }
    handler.define_singleton_method(:call) do |message|
      super(message)
      raise "again" if message.attempt < 2
    end
    connected(BunnyClient, proxy.url, queue, nil, **given) do |client|
      subscription = client.retrier.subscribe(handler)
      3.times do |round|
        broker.publish(round.to_s, queue)
        until_true { handler.messages.any? { |each| each.body == round.to_s && each.attempt == 2 } }
        proxy.cut
        until_true { client.connection.open? && subscription.channel.open? }
      end
      broker.publish("last", queue)
      until_true { handler.messages.any? { |each| each.body == "last" && each.attempt == 2 } }
      until_true { broker.channel.queue_declare(queue, passive: true).consumer_count == 1 }
      subscription.cancel
      client.retrier.drain(PATIENCE)
    end
    expect(bunny.string).not_to include("Caught an exception while recovering")
    proxy.close
  end

  it "says what to do where the queue to subscribe to is not there" do
    connected(BunnyClient, URL, "#{queue}.none", nil, **options, mode: :none) do |client|
      expect { client.retrier.subscribe { nil } }
        .to raise_error(Backhop::MissingError, /"#{queue}.none" cannot be consumed.*declare it first.*work_queue: :quorum/)
      expect(client.channel).to be_open
    end
  end

  it "refuses a message of another queue, and says what a consumer without manual_ack loses" do
    other = broker.queue
    handler = Handler.failing(1, Backhop::Park)
    connected(BunnyClient, URL, queue, nil, **options) do |client|
      client.declare
      broker.publish("other", other)
      client.channel.queue(other, no_declare: true).subscribe(manual_ack: true, &client.retrier.wrap(handler))
      until_true { log.string.include?("make a retrier for each queue") }
      broker.publish("body", queue)
      client.channel.queue(queue, no_declare: true).subscribe(&client.retrier.wrap(handler))
      expect(broker.bodies(parked, 1)).to eq(["body"])
      expect(log.string).to include("consume with manual_ack: true")
      client.retrier.drain(PATIENCE)
      expect(client.channel).to be_open
    end
    expect(handler.messages.map(&:body)).to eq(["body"])
    until_true { broker.count(other) == 1 }
  end

  it "tells of a message whose channel is gone when its handler ends that it comes again, and nothing else" do
    events = Queue.new
    connected(BunnyClient, URL, queue, nil, **options, on_event: events.method(:push)) do |client|
      client.declare
      broker.publish("body", queue, message_id: "m1")
      work = client.channel.queue(queue, no_declare: true)
      delivery = until_true { work.pop(manual_ack: true).then { |got| got if got.first } }
      message = client.retrier.read(*delivery)
      client.channel.close
      client.retrier.settle(message)
    end
    told = Array.new(events.size) { events.pop }
    expect(told.map(&:name)).to eq(%i[delivered stale])
    expect(told.last).to have_attributes(id: "m1", text: /the broker delivers it again/)
    until_true { broker.count(queue) == 1 }
  end

  it "says why the channel closed to a ported handler that still acknowledges, and consumes on" do
    broker.publish("body", queue)
    connected(BunnyClient, URL, queue, nil, **options) do |client|
      handled = Queue.new
      subscription = client.retrier.subscribe do |message|
        handled << message.body
        message.delivery_info.channel.ack(message.delivery_info.delivery_tag) if message.body == "body"
      end
      until_true { log.string.include?("acknowledged or rejected twice, or needs no acknowledgement") }
      broker.publish("next", queue)
      expect(Array.new(2) { Timeout.timeout(PATIENCE) { handled.pop } }).to eq(%w[body next])
      subscription.cancel
      client.retrier.drain(PATIENCE)
    end
  end

  it "says that declare was forgotten" do
    broker.publish("body", queue)
    connected(BunnyClient, URL, queue, Handler.failing(1), **options) do |client|
      client.begin
      until_true { log.string.include?("was retrier.declare forgotten?") }
      client.declare
      until_true { client.retrier.pending.zero? }
    end
  end

  it "handles the broker's close of a channel while another thread opens one" do
    connected(BunnyClient, URL, queue, nil, **options) do |client|
      client.declare
      channel = client.connection.create_channel
      # A thread that opens a channel has this lock until Bunny's own thread has read the broker's answer.
      client.connection.instance_variable_get(:@channel_mutex).synchronize do
        expect { channel.queue_declare("#{queue}-missing", passive: true) }.to raise_error(Bunny::NotFound)
      end
      until_true { client.connection.find_channel(channel.id).nil? }
    end
  end

  it "declares by its mode" do
    connected(BunnyClient, URL, queue, nil, **options, mode: :verify) do |client|
      expect { client.declare }.to raise_error(Backhop::MissingError, /#{parked}/)
    end
    connected(BunnyClient, URL, queue, nil, **options, mode: :none) do |client|
      client.declare
      expect(broker.count(parked)).to be_nil
      expect { client.retrier.verify }.to raise_error(Backhop::MissingError)
    end
    connected(BunnyClient, URL, queue, nil, **options) do |client|
      expect(client.declare).to be(client.retrier)
      expect(client.retrier.verify).to be(client.retrier)
    end
  end

  # Events of a retrier, in their order.
  def told(events, *names)
    Timeout.timeout(PATIENCE) do
      names.map { |name| loop { (event = events.pop).name == name && (break event) } }
    end
  end

  it "tells whom on_event is what becomes of messages, in Bunny and in Kicks" do
    CLIENTS.each_value do |client|
      events = Queue.new
      handler = Handler.new(RuntimeError.new("no"), Backhop::Park.new("why"))
      id = SecureRandom.hex
      consuming(client, URL, queue, handler, **options, on_event: events.method(:push)) do |consumer|
        broker.publish("body", queue, message_id: id)
        retried, was_parked = told(events, :retried, :parked)
        expect(retried).to have_attributes(id: id, attempts: 1, delay: 0.1, queue: queue, count: 1, error: RuntimeError)
        expect(was_parked).to have_attributes(id: id, attempts: 2, delay: 0.0, queue: queue, text: "permanent")
        expect(consumer.retrier.replay).to eq(1)
        expect(told(events, :replayed).first).to have_attributes(count: 1, queue: queue, error: nil)
        handler.saw(3)
        until_true { broker.count(queue).zero? }
      end
    end
  end

  it "tells of a copy that no queue takes, and of one for which there is no room" do
    events = Queue.new
    handler = Handler.failing(2, Backhop::Park)
    consuming(BunnyClient, URL, queue, handler, **options, on_event: events.method(:push)) do |client|
      broker.channel.queue_delete(parked)
      broker.publish("one", queue, message_id: "m")
      returned, = told(events, :returned, :parked)
      expect(returned).to have_attributes(id: "m", attempts: 1, delay: a_value > 0, queue: queue, text: /312 NO_ROUTE/,
                                          error: Backhop::PublishError)
      broker.channel.queue_delete(parked)
      arguments = { "x-queue-type" => "classic", "x-max-length" => 0, "x-overflow" => "reject-publish" }
      broker.channel.queue_declare(parked, durable: true, arguments: arguments)
      broker.publish("two", queue, message_id: "n")
      expect(told(events, :nacked).first).to have_attributes(id: "n", delay: a_value > 0, error: Backhop::PublishError)
      expect { client.retrier.replay }.not_to raise_error # there is nothing
      broker.channel.queue_delete(parked)
      told(events, :parked)
    end
    expect(broker.count(queue)).to eq(0)
  end

  it "logs what on_event raises, and goes on" do
    broker.publish("body", queue)
    given = { **options, on_event: ->(_) { raise KeyError, "no" } }
    consuming(BunnyClient, URL, queue, Handler.failing(3), **given) { broker.bodies(parked, 1) }
    expect(log.string).to include(*%w[retried parked].map { |at| "a listener failed at #{at} of \"#{queue}\": KeyError: no" })
    expect(broker.count(queue)).to eq(0)
  end

  it "waits by the policy of the error's class, over Bunny, in Kicks, and in a worker", :long do
    limited = Class.new(StandardError)
    slow = Backhop::Policy.new(kind: :fixed, initial: 0.5, jitter: :none, max_attempts: 2)
    given = { **options, policies: { limited => slow } }
    ways = CLIENTS.values.map { |client| ->(handler, &block) { consuming(client, URL, queue, handler, **given, &block) } }
    if Backhop.build_info.worker?
      ways << lambda do |handler, &block|
        running(Backhop::Worker.new(URL, queue: queue, **given, connect_timeout: PATIENCE / 2), handler.method(:call), &block)
      end
    end
    ways.each do |way|
      handler = Handler.new(RuntimeError.new, limited.new)
      broker.publish("body", queue)
      copy = way.call(handler) { broker.get(parked)[1] }
      expect(copy[:headers].values_at("backhop-parked", "backhop-attempts")).to eq(["exhausted", 2])
      handler = Handler.new(limited.new)
      broker.publish("body", queue)
      way.call(handler) { handler.saw(2) }
      expect(handler.messages.last.last_delay).to eq(0.5)
      until_true { broker.count(queue).zero? }
    end
  end

  context "of workers", :worker do
    it "ends at once where a handler exits and no other has a message" do
      broker.publish("body", queue)
      started = now
      worker = Backhop::Worker.new(URL, queue: queue, **options, drain: PATIENCE, connect_timeout: PATIENCE / 2)
      expect { worker.run { |_| exit } }.to raise_error(SystemExit)
      expect(now - started).to be < PATIENCE / 2
      expect(broker.get(queue).last).to eq("body")
    end

    it "lets other handlers settle before it ends where one exits" do
      %w[exit slow].each { |body| broker.publish(body, queue) }
      slow = Queue.new
      worker = Backhop::Worker.new(URL, queue: queue, **options, threads: 2, drain: PATIENCE, connect_timeout: PATIENCE / 2)
      run = Thread.new do
        worker.run do |message|
          if message.body == "slow"
            slow << message.body
            until_true { worker.instance_variable_get(:@run).failures.any? } # the other one has exited
            next
          end
          sleep 0.01 while slow.empty?
          exit
        end
      end
      run.report_on_exception = false
      expect { run.value }.to raise_error(SystemExit)
      expect(broker.get(queue).last).to eq("exit")
      expect(broker.count(queue)).to eq(0)
    end

    it "drains all that run in a process at a signal, which the one before them hears too, and has back" do
      other = broker.queue
      output = program(<<~'RUBY', URL, queue, other) { |io| await(io, "ready 2") || Process.kill("TERM", io.pid) }
        heard = 0
        Signal.trap("TERM") { $stdout.write("heard\n") && heard += 1 }
        connected = Queue.new
        threads = ARGV[1..2].map do |name|
          worker = Backhop::Worker.new(ARGV[0], queue: name, mode: :none, connect_timeout: 60,
                                                on_event: ->(event) { connected << 1 if event.name == :connected })
          Thread.new { worker.run { nil } }
        end
        2.times { connected.pop }
        puts "ready 2"
        threads.each(&:join)
        puts "drained"
        Process.kill("TERM", Process.pid)
        sleep 0.01 until heard == 2
      RUBY
      expect(output.lines(chomp: true)).to eq(%w[heard drained heard])
    end

    it "leaves signals to the host of serve" do
      output = program(<<~'RUBY', URL, queue) { |io| await(io, "ready") || Process.kill("TERM", io.pid) }
        require "async"
        connected = Queue.new
        worker = Backhop::Worker.new(ARGV[0], queue: ARGV[1], mode: :none, connect_timeout: 60,
                                              on_event: ->(event) { connected << 1 if event.name == :connected })
        Signal.trap("TERM") { Thread.new { puts "host"; worker.stop } }
        serving = Thread.new { Async { worker.serve { nil } }.wait }
        connected.pop
        puts "ready"
        serving.join
        puts "served"
      RUBY
      expect(output.lines(chomp: true)).to eq(%w[host served])
    end

    it "gives how many messages a replay sent, all of them by default" do
      3.times { |number| broker.publish(number.to_s, queue) }
      handled = Queue.new
      worker = Backhop::Worker.new(URL, queue: queue, **options, connect_timeout: PATIENCE / 2)
      running(worker, ->(_message) { (handled << 1) && (raise Backhop::Park if handled.size <= 3) }) do
        until_true { broker.count(parked) == 3 }
        expect([worker.replay(0), worker.replay(2), worker.replay, worker.replay]).to eq([0, 2, 1, 0])
        until_true { handled.size == 6 }
      end
      expect { worker.replay }.to raise_error(Backhop::StateError)
    end
  end
end
