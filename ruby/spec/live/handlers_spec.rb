# frozen_string_literal: true

require "spec_helper"
require "program"
require "running"
require_relative "support"
require_relative "carriers"

# How handlers end, and how subscriptions end. Each example has the id of its finding.
RSpec.describe "A subscription over Bunny", skip: NEEDS_BROKER do
  include Live

  let(:queue) { broker.queue }
  let(:events) { Running::Events.new }
  let(:seen) { Running::Inbox.new }
  let(:options) { { policy: QUICK, namespace: namespace, on_event: events } }

  def subscribed(threads: 1, url: URL, handler: nil, **bunny)
    connected(BunnyClient, url, queue, nil, **options, bunny: bunny) do |client|
      call = lambda do |message|
        seen.call(message)
        handler.call(message)
      end
      yield client.retrier.subscribe(call, prefetch: 10, threads: threads), client
    end
  end

  # The bodies of the messages that a handler gets next.
  def bodies(count) = Array.new(count) { seen.get.body }

  unusual = Class.new(Exception) # rubocop:disable Lint/InheritException
  ends = {
    "raises a subclass of Exception" => -> { raise unusual, "no ordinary error" },
    "calls Thread.exit" => -> { Thread.exit },
    "kills its thread" => -> { Thread.current.kill },
    "throws the tag of Bunny's pool" => -> { throw :terminate }
  }
  ends.each do |name, ending|
    it "RT3, RT4: goes on where a handler #{name}, counts an attempt, and can be cancelled" do
      bad = 0
      subscribed(handler: ->(message) { message.body == "bad" && (bad += 1) < 3 && ending.call }) do |subscription|
        %w[bad a b].each { |body| broker.publish(body, queue) }
        expect(bodies(5)).to contain_exactly("bad", "bad", "bad", "a", "b")
        expect(events.get(:retried)).to have_attributes(attempts: 1)
        expect(events.get(:retried)).to have_attributes(attempts: 2)
        until_true { subscription.channel.work_pool.threads.count(&:alive?) == 1 }
        expect(subscription.cancel(PATIENCE)).to be(true)
      end
      expect(broker.count(queue)).to eq(0)
      expect(log.string).to match(/ERROR.*failed: message .*(ended its thread|no ordinary error)/)
    end
  end

  it "RT3: replaces each of several threads, in the pool of an application too" do
    died = 0
    handler = lambda do |message|
      seen.call(message)
      Thread.exit if message.body == "bad" && (died += 1) <= 3
    end
    connected(PoolClient, URL, queue, handler, **options) do |client|
      client.declare
      client.begin
      %w[bad bad bad good].each { |body| broker.publish(body, queue) }
      expect(bodies(7)).to contain_exactly(*["bad"] * 6, "good")
      until_true { client.channel.work_pool.threads.count(&:alive?) == 8 }
    end
  end

  { "kills" => ->(thread) { thread.kill }, "raises into" => ->(thread) { thread.raise("too late") } }
    .each do |name, ending|
    it "R4-1: goes on if another thread #{name} an idle thread of the pool" do
      subscribed(handler: ->(_) {}) do |subscription|
        broker.publish("first", queue)
        expect(bodies(1)).to eq(%w[first])
        events.get(:succeeded)
        until_true { subscription.busy.zero? }
        idle = subscription.channel.work_pool.threads.first
        idle.report_on_exception = false
        ending.call(idle)
        until_true { !idle.alive? }
        broker.publish("second", queue)
        expect(bodies(1)).to eq(%w[second])
      end
      expect(log.string).to match(/WARN.*another thread ended 1 idle threads/)
    end
  end

  it "R4-10: replaces a thread whose message cannot be settled" do
    handler = lambda do |message|
      seen.call(message)
      Thread.current.report_on_exception = false
      Thread.exit if message.body == "bad"
    end
    listener = lambda do |event|
      raise Exception, "no listener survives this" if event.name == :failed # rubocop:disable Lint/RaiseException
    end
    connected(BunnyClient, URL, queue, handler, **options, on_event: listener) do |client|
      subscription = client.retrier.subscribe(handler)
      %w[bad good].each { |body| broker.publish(body, queue) }
      expect(bodies(2)).to eq(%w[bad good])
      until_true { subscription.channel.work_pool.threads.count(&:alive?) == 1 }
    end
    expect(broker.get(queue).last).to eq("bad")
  end

  it "D1: drains after a subscribe that raised" do
    connected(BunnyClient, URL, "#{queue}.none", nil, **options, mode: :none) do |client|
      expect { client.retrier.subscribe { nil } }.to raise_error(Backhop::MissingError)
      expect(client.retrier.drain).to be(client.retrier)
    end
  end

  # Each carrier yields while it consumes.
  carriers = {
    "subscribe" => SubscribedClient, "a pool" => PoolClient, "wrap" => BunnyClient, "Kicks" => KicksClient
  }.transform_values do |client|
    lambda do |example, handler, &block|
      example.instance_exec { consuming(client, URL, queue, handler, **options) { block.call } }
    end
  end
  carriers["run"] = lambda do |example, handler, &block|
    example.instance_exec do
      running(Backhop::Worker.new(URL, queue: queue, retry_events: true, **options), handler.method(:call), &block)
    end
  end

  carriers.each do |name, carrier|
    long = { long: !%w[subscribe run].include?(name), worker: name == "run" }

    # Kicks calls no handler for its value: a worker that answers a thread settles the message
    # itself.
    title = "P4-1: over #{name} retries a message whose handler returns work that has not ended"
    name != "Kicks" && it(title, **long) do
      go = Queue.new
      values = [-> { Thread.new { go.pop } }, -> { [1].lazy.map { |each| each } }]
      broker.publish("a", queue)
      carrier.call(self, ->(message) { values[message.attempt - 1]&.call }) do
        expect(Array.new(2) { events.get(:failed).error_text })
          .to match([/returned a Thread that still runs: join it/, /returned an Enumerator/])
        expect(events.get(:succeeded)).to have_attributes(attempt: 3)
      end
    ensure
      go.close
    end

    it "N4-6: over #{name} settles a message that its handler froze", **long do
      broker.publish("a", queue)
      failures = ["no"]
      options[:breaker] = Backhop::Breaker.new("an API")
      carrier.call(self, ->(message) { message.freeze && failures.pop&.then { |text| raise text } }) do
        expect(events.get(:retried)).to have_attributes(attempts: 1)
        expect(events.get(:succeeded)).to have_attributes(attempt: 2)
      end
    end

    it "P4-2: over #{name} takes a subclass of Throttled, RetryAfter or Park that calls no super", **long do
      bare = ->(kind) { Class.new(kind) { def initialize(page) = @page = page } }
      kinds = [Backhop::Throttled, Backhop::RetryAfter, Backhop::Park].map(&bare)
      broker.publish("a", queue)
      carrier.call(self, ->(_) { raise kinds.shift.new("/a") }) do
        expect(%i[deferred retried parked].map { |each| events.get(each).attempts }).to eq([0, 1, 2])
      end
    end
  end

  { "wrap" => BunnyClient, "wrap, in a pool" => PoolClient }.each do |name, client|
    it "P4-3: drains a handler that runs under #{name}", long: further?(client) do
      go = Queue.new
      handler = lambda do |message|
        seen.call(message)
        go.pop
        raise IOError, "late" if message.body == "bad"
      end
      consuming(client, URL, queue, handler, **options) do |consumer|
        %w[good bad].each do |body|
          broker.publish(body, queue)
          expect(bodies(1)).to eq([body])
          expect { consumer.retrier.drain(0.05) }.to raise_error(Backhop::WaitTimeoutError, /1 message/)
          go << 1
          consumer.retrier.drain
          expect(events.get(body == "good" ? :succeeded : :retried)).to have_attributes(queue: queue)
        end
        go.close # the retry may be here before the consumer has stopped
      end
    end
  end

  it "P4-3: drains a handler that runs under process, and not the handler that drains" do
    go = Queue.new
    connected(BunnyClient, URL, queue, nil, **options) do |client|
      client.declare
      broker.publish("a", queue)
      work = client.channel.queue(queue, no_declare: true)
      thread = Thread.new do
        until_true do
          client.retrier.process(*work.pop(manual_ack: true)) do |message|
            seen.call(message)
            go.pop
            client.retrier.drain
          end
        end
      end
      bodies(1)
      expect { client.retrier.drain(0.05) }.to raise_error(Backhop::WaitTimeoutError)
      go << 1
      client.retrier.drain
      thread.join
      expect(events.get(:succeeded)).to have_attributes(attempt: 1)
    end
  end

  absent = NEEDS_BROKER || Carriers.missing("kicks")
  it "P4-3: a worker of Kicks lets its running handlers end when it stops", :long, skip: absent do
    Carriers::OfKicks.load
    go = Queue.new
    handler = lambda do |message|
      seen.call(message)
      go.pop
    end
    broker.publish("a", queue)
    carrier = Carriers::OfKicks.new(URL, queue, handler, **options)
    carrier.begin
    bodies(1)
    stop = Thread.new { carrier.stop(PATIENCE) }
    until_true { broker.channel.queue_declare(queue, passive: true).consumer_count.zero? }
    go << 1
    stop.join
    expect(events.get(:succeeded)).to have_attributes(attempt: 1)
    expect(broker.count(queue)).to eq(0)
  end

  it "RT4: cancels within its limit while a handler runs, and gives other messages back at once" do
    go = Queue.new
    subscribed(handler: ->(_) { go.pop }) do |subscription|
      %w[a b].each { |body| broker.publish(body, queue) }
      expect(bodies(1)).to eq(%w[a])
      expect(subscription.cancel(0.2)).to be(false)
      go << 1
      expect(subscription.cancel(PATIENCE)).to be(true)
      until_true { broker.count(queue) == 1 }
    end
    expect(broker.get(queue).last).to eq("b")
    expect(seen).to be_empty
  end

  it "F3: stops within one limit during an alarm", :long do
    skip "needs the broker of tests/broker" unless ENV["BACKHOP_BROKER_CTL"]
    subscribed(handler: ->(_) { raise "no" }, continuation_timeout: PATIENCE * 1000) do |subscription, client|
      broker.control("set-alarm")
      client.channel.basic_publish("", "", "#{queue}.none") # the broker blocks what publishes
      until_true { client.connection.blocked? }
      began = now
      expect(client.retrier.drain(0.5)).to be(client.retrier)
      expect(now - began).to be < PATIENCE # Bunny's own limit
      expect(subscription.wait(0)).to be(true)
    ensure
      broker.control("clear-alarm")
    end
  end

  it "F3: drains its subscriptions and copies" do
    go = Queue.new
    subscribed(handler: ->(_) { go.pop && raise(IOError, "late") }) do |subscription, client|
      broker.publish("a", queue)
      seen.get
      expect { client.retrier.drain(0.2) }.to raise_error(Backhop::WaitTimeoutError, /1 message/)
      expect(subscription.wait(0)).to be(true)
      go << 1
      expect(client.retrier.drain(PATIENCE)).to be(client.retrier)
      expect(client.retrier.pending).to eq(0)
    end
  end

  it "has a state, and can be awaited" do
    connected(BunnyClient, proxy.url, queue, nil, **options) do |client|
      subscription = client.retrier.subscribe(timeout: "1h") { nil }
      expect([subscription.ready, subscription.state]).to eq([subscription, :ready])
      events.get(:connected)
      proxy.cut
      expect(events.get(:disconnected).error).to be_a(Backhop::ConnectionFailedError)
      events.get(:connected)
      expect(subscription.ready(PATIENCE).state).to eq(:ready)
      subscription.cancel(PATIENCE)
      expect(subscription.state).to eq(:stopped)
      expect { subscription.ready }
        .to raise_error(Backhop::StateError, /\Athe consumer has stopped and cannot become ready; consume again/)
      expect { client.retrier.subscribe(timeout: -1) { nil } }
        .to raise_error(Backhop::InvalidArgumentError, /timeout is -1/)
    end
    proxy.close
  end

  it "is paused during an alarm", :long do
    skip "needs the broker of tests/broker" unless ENV["BACKHOP_BROKER_CTL"]
    subscribed(handler: ->(_) {}) do |subscription, client|
      broker.control("set-alarm")
      client.channel.basic_publish("", "", "#{queue}.none") # the broker blocks what publishes
      until_true { subscription.state == :paused }
      expect(subscription.state_reason).to match(/memory or disk/)
      expect { subscription.ready(0.05) }
        .to raise_error(Backhop::WaitTimeoutError, /its state is paused: .*memory or disk/)
    ensure
      broker.control("clear-alarm")
      subscription.ready(PATIENCE)
    end
  end

  it "RT9: logs advice where a handler under wrap acknowledges by itself" do
    handler = ->(message) { message.delivery_info.channel.ack(message.delivery_info.delivery_tag) }
    closed = Running::Inbox.new
    consuming(BunnyClient, URL, queue, handler, **options) do |client|
      client.channel.on_error { |_, close| closed.call(close.reply_code) }
      broker.publish("bad", queue)
      expect(closed.get).to eq(406)
      until_true { log.string.include?("leave acknowledging to Backhop alone") }
      expect(log.string).to match(/WARN.*manual_ack: true/)
    end
  end

  it "RT5: refuses to be used in a forked child" do
    program = <<~RUBY
      require "backhop/bunny"
      connection = Bunny.new(ARGV[0]).start
      retrier = Backhop::Bunny::Retrier.new(connection.create_channel, queue: ARGV[1], namespace: ARGV[2]).declare
      arrived = Queue.new
      go = Queue.new
      channel = connection.create_channel
      channel.queue(ARGV[1], no_declare: true).subscribe(manual_ack: true) do |*delivery|
        arrived << retrier.read(*delivery)
        go.pop
      end
      message = arrived.pop
      child = fork do
        calls = { declare: -> { retrier.declare }, verify: -> { retrier.verify },
                  subscribe: -> { retrier.subscribe { nil } },
                  settle: -> { retrier.settle(message, RuntimeError.new("no")) }, drain: -> { retrier.drain },
                  replay: -> { retrier.replay },
                  process: -> { retrier.process(message.delivery_info, message.properties, "x") { nil } } }
        calls.each do |name, call|
          call.call
          puts "\#{name}: no error"
        rescue Backhop::ForkedError => e
          puts "\#{name}: \#{e.message[/child process/]}"
        end
        exit!(0)
      end
      Process.wait(child)
      retrier.settle(message)
      go << 1
      connection.create_channel.close # the broker would close the connection if the child had written to it
      puts "the parent goes on: \#{connection.open?}"
      connection.close
    RUBY
    broker.publish("a", queue)
    said = program(program, URL, queue, namespace).lines(chomp: true)
    refused = %w[declare verify subscribe settle drain replay process].map { |name| "#{name}: child process" }
    expect(said).to eq([*refused, "the parent goes on: true"])
    expect(broker.count(queue)).to eq(0)
  end
end
