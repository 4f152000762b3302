# frozen_string_literal: true

require "spec_helper"
require "running"
require_relative "support"

# Calls as Kicks 3 does (Sneakers::Queue#subscribe and Sneakers::Worker#process_work), on a Bunny
# channel.
RSpec.describe Backhop::Kicks::Handler, :long, skip: NEEDS_BROKER do
  include Live

  let(:queue) { broker.queue }
  let(:parked) { "#{queue}.parked" }
  let(:connection) { Bunny.new(URL, **PATIENT).start }
  let(:channel) { connection.create_channel }
  let(:arrived) { Running::Inbox.new }

  after { connection.close }

  # Does as Sneakers::Queue#subscribe with a worker's options; returns the handler.
  def subscribe(name, **backhop)
    arguments = { "x-queue-type": "quorum", "x-max-length": 1000 }
    options = { ack: true, queue_options: { durable: true, arguments: arguments }, backhop: backhop }
    options[:queue_options] = described_class.configure_queue(name, options)
    bunny_queue = channel.queue(name, **options[:queue_options])
    handler = described_class.new(channel, bunny_queue, options)
    bunny_queue.subscribe(block: false, manual_ack: options[:ack]) { |*delivery| arrived.call(delivery) }
    handler
  end

  def work(name = "#{namespace}.work")
    yield name
  ensure
    [name, "#{name}.parked", "#{name}.retry"].each { |each| broker.channel.queue_delete(each) }
  end

  it "declares what it needs, and brings back what the worker rejects, or is too long about" do
    work do |name|
      handler = subscribe(name, policy: QUICK, namespace: namespace)
      broker.publish("body", name)
      handler.reject(*arrived.get)
      second = arrived.get
      expect(second[0][:backhop]).to have_attributes(
        attempt: 2, last_error: "Backhop::Kicks::RejectedError: the worker rejected it"
      )
      handler.timeout(*second)
      third = arrived.get
      expect(third[0][:backhop].last_error).to eq("Backhop::Kicks::JobTimeoutError: the worker took too long")
      handler.error(*third, RuntimeError.new("507"))
      copy = broker.get("#{name}.parked")[1]
      expect(copy[:headers]).to include("backhop-parked" => "exhausted", "backhop-error" => "RuntimeError: 507")
      handler.retrier.drain(PATIENCE)
    end
  end

  it "acknowledges, and gives back as it is what the worker wants again" do
    work do |name|
      handler = subscribe(name, policy: QUICK, namespace: namespace)
      broker.publish("body", name)
      handler.reject(*arrived.get, true)
      second = arrived.get
      expect(second[0][:backhop]).to have_attributes(attempt: 1, redelivered?: true)
      handler.acknowledge(*second)
      channel.close # unacknowledged messages go back to the queue's head
      broker.publish("last", name)
      expect(broker.bodies(name, 1)).to eq(["last"])
    end
  end

  it "settles nothing where the worker does it itself" do
    work do |name|
      handler = subscribe(name, policy: QUICK, namespace: namespace)
      broker.publish("body", name)
      handler.noop(*arrived.get)
      channel.close
      until_true { broker.count(name) == 1 }
    end
  end

  it "hands the worker's result through around_action" do
    work do |name|
      handler = subscribe(name, policy: QUICK, namespace: namespace, mode: :create)
      broker.publish("body", name)
      delivery = arrived.get
      expect(handler.around_action(*delivery) { :ack }).to eq(:ack)
      handler.acknowledge(*delivery)
    end
  end

  it "parks what is never to be tried again, whatever thread says so" do
    work do |name|
      handler = subscribe(name, policy: QUICK, namespace: namespace, never: [KeyError])
      errors = [KeyError.new("a"), Backhop::Park.new("b"), Backhop::Drop.new]
      errors.size.times { |i| broker.publish(i.to_s, name) }
      errors.map { |error| Thread.new { handler.error(*arrived.get, error) } }.each(&:join)
      handler.retrier.drain(PATIENCE)
      until_true { broker.count("#{name}.parked") == 2 }
    end
  end

  it "gives a work queue the arguments that its strategy lives in" do
    work do |name|
      policy = Backhop::Policy.new(initial: 0.2, kind: :fixed, jitter: :none, max_attempts: 2)
      handler = subscribe(name, policy: policy, namespace: namespace, strategy: :reject)
      broker.publish("body", name)
      handler.error(*arrived.get, RuntimeError.new)
      again = arrived.get
      expect(again[0][:backhop].attempt).to eq(2)
      handler.error(*again, RuntimeError.new)
      expect(broker.get("#{name}.parked").last).to eq("body")
      handler.retrier.drain(PATIENCE)
      channel.close
      broker.delete(handler.retrier.topology)
    end
  end

  it "verifies, or declares nothing" do
    work do |name|
      expect { subscribe(name, policy: QUICK, namespace: namespace, mode: :verify) }.to raise_error(
        Backhop::MissingError, /#{name}.parked/
      )
      subscribe(name, policy: QUICK, namespace: namespace, mode: :none)
      expect(broker.count("#{name}.parked")).to be_nil
      expect { subscribe(name, mode: :perhaps) }.to raise_error(Backhop::InvalidArgumentError, /mode/)
    end
  end

  it "W3: refuses a stream as a work queue", :real do
    work do |name|
      broker.channel.queue_declare(name, durable: true, arguments: { "x-queue-type" => "stream" })
      bunny_queue = channel.queue(name, no_declare: true)
      described_class.new(channel, bunny_queue, { ack: true, backhop: { policy: QUICK, namespace: namespace } })
      expect { bunny_queue.subscribe(manual_ack: true) { nil } }.to raise_error(Backhop::ClashError, /is a stream/)
    end
  end

  it "leaves the arguments of a work queue alone that no strategy needs" do
    given = { durable: true, arguments: { "x-max-length": 5 } }
    expect(described_class.configure_queue("any", { queue_options: given, backhop: { policy: QUICK } })).to equal(given)
    expect(described_class.configure_queue("any", {})).to eq({})
  end
end
