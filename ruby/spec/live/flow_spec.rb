# frozen_string_literal: true

require "spec_helper"
require "running"
require_relative "support"
require_relative "carriers"

# A downstream that keeps its calls.
class Downstream
  attr_reader :calls

  def initialize
    @calls = Queue.new
    @lock = Mutex.new
    @handled = Hash.new { |all, body| all[body] = [] } # attempts by body
  end

  def call(message)
    @calls << message.body
    @lock.synchronize { @handled[message.body] << message.attempt }
  end

  def handled = @lock.synchronize { @handled.dup }

  # Returns the messages that were not handled once, by their first attempt.
  def miscounted = handled.reject { |_, attempts| attempts == [1] }
end

# Lost consumers and long pauses. tests/contract/steps.json has the other cases, over each carrier.
RSpec.describe "A breaker", skip: NEEDS_BROKER do
  include Live

  let(:queue) { broker.queue }
  let(:events) { Running::Events.new }
  let(:downstream) { Downstream.new }
  let(:pauses) { Backhop::Policy.new(kind: :fixed, initial: 0.3, jitter: :none) }
  let(:policy) { Backhop::Policy.new(kind: :fixed, initial: 0.2, jitter: :none, max_attempts: 8) }
  let(:breaker) { Backhop::Breaker.new("api", row_failures: 3, probe_successes: 1, pauses: pauses) }

  def carried(name, handler, breaker, url: URL, **options)
    skip Carriers.missing(name) if Carriers.missing(name)
    Carriers::OfKicks.load if name == "kicks"
    options = { policy: policy, namespace: namespace, on_event: events, breaker: breaker, **options }
    carrier = Carriers::ALL.fetch(name).new(url, queue, handler, **options)
    thread = Thread.new { carrier.call }
    thread.report_on_exception = false
    yield carrier
  ensure
    carrier&.stop(PATIENCE)
    thread&.kill
    thread&.join
  end

  def publish(count, prefix = "m") = count.times { |index| broker.publish("#{prefix}#{index}", queue) }

  # Keeps the thread of Bunny that reads a connection from its work, until the block ends.
  def not_reading(connection)
    began = Queue.new
    ended = Queue.new
    channel = connection.create_channel
    channel.confirm_select(->(*) { began << ended.pop })
    channel.basic_publish("", "", queue)
    until_true { ended.num_waiting == 1 }
    yield
  ensure
    ended.close
  end

  def held_by(retrier)
    retrier.instance_variable_get(:@gates).send(:live).sum { |gate| gate.instance_variable_get(:@held).size }
  end

  ends = {
    "cancels" => [SubscribedClient, ->(client) { client.instance_variable_get(:@subscription).cancel(0.2) }],
    "drains" => [BunnyClient, ->(client) { client.retrier.drain(0.2) }]
  }
  ends.each do |name, (kind, finish)|
    it "#{name} within its limit if the connection is lost, and Bunny finds that when held messages are returned" do
      recovery = Queue.new
      bunny = { recovery_attempt_started: -> { recovery.pop } }
      breaker.open
      publish(3)
      options = { policy: policy, namespace: namespace, breaker: breaker }
      connected(kind, proxy.url, queue, downstream, bunny: bunny, **options) do |consumer|
        consumer.declare
        consumer.begin
        until_true { held_by(consumer.retrier) == 3 }
        not_reading(consumer.connection) do
          proxy.cut
          expect(finish.call(consumer)).to be_truthy
        end
        recovery.close
        until_true { !Backhop::Bunny::Channels.recovering?(consumer.connection) }
      end
      proxy.close
      broker.await_count(queue, 4)
    end
  end

  %w[bunny-subscribe bunny-wrap kicks].each do |name|
    it "F4-1: lets held messages wait over #{name} if their queue is deleted", long: Carriers.further?(name) do
      breaker.open
      publish(10) # the prefetch
      carried(name, downstream, breaker) do |carrier|
        until_true { broker.count(queue)&.zero? && carrier.waiting? }
        broker.channel.queue_delete(queue)
        broker.queue(name: queue)
        Backhop::Bunny::Retrier.new(broker.channel, queue: queue, policy: policy, namespace: namespace).declare
        deferred = Array.new(10) { events.get(:deferred) }
        expect(deferred).to all(have_attributes(attempts: 0, deferrals: 1))
        breaker.close
        # A copy that came back before its queue was declared is in the unroutable queue.
        until_true do
          downstream.handled.size + broker.count(queue).to_i + broker.count("#{namespace}.unroutable") == 10
        end
      end
      expect(downstream.miscounted).to eq({})
    end
  end

  %w[bunny-subscribe kicks].each do |name|
    it "emits a change by hand over #{name} before the first delivery" do
      carried(name, downstream, breaker) do |carrier|
        until_true { carrier.waiting? }
        breaker.open
        events.get(:breaker_opened)
      end
    end
  end

  describe "over bunny-subscribe, after its hold", :long do
    include Clock

    before { control_clock("backhop-gate") }

    def consumers = broker.channel.queue_declare(queue, passive: true).consumer_count

    # Holds five messages, and lets the hold pass.
    def hold_too_long(carrier, seconds)
      breaker.open(seconds)
      publish(5)
      events.get(:breaker_opened)
      gate = carrier.subscription.instance_variable_get(:@gate)
      until_true { gate.instance_variable_get(:@held).size == 5 }
      @ahead_ms += 31_000
      until_true { consumers.zero? }
    end

    # Waits until the subscription has looked that often at its connection and its breaker.
    def looks(carrier, count)
      made = 0
      allow(carrier.retrier).to(receive(:check_connection).and_wrap_original { |check| check.call.tap { made += 1 } })
      until_true { made >= count }
    end

    it "cancels its consumer, defers the messages, and consumes again" do
      carried("bunny-subscribe", downstream, breaker) do |carrier|
        hold_too_long(carrier, 33)
        deferred = Array.new(5) { events.get(:deferred) }
        expect(deferred).to all(have_attributes(attempts: 0, deferrals: 1, delay: be_between(1, 3)))
        until_true { carrier.subscription.state == :paused }
        expect(downstream.calls.size).to eq(0)
        until_true { downstream.handled.size == 5 }
        expect(carrier.subscription.ready(PATIENCE).state).to eq(:ready)
        expect(consumers).to eq(1)
      end
      expect(downstream.miscounted).to eq({})
    end

    it "does not consume on another connection before its pause is over" do
      carried("bunny-subscribe", downstream, breaker, url: proxy.url) do |carrier|
        hold_too_long(carrier, 120)
        5.times { events.get(:deferred) }
        proxy.cut
        until_true { events.get(:connected) }
        until_true { !Backhop::Bunny::Channels.recovering?(carrier.connection) }
        looks(carrier, 3)
        expect(consumers).to eq(0)
        publish(3, "n")
        breaker.close
        until_true { downstream.handled.size >= 3 }
        expect(consumers).to eq(1)
      end
      proxy.close
    end
  end
end
