# frozen_string_literal: true

require "open3"
require "backhop/rspec"

RSpec.describe Backhop::Testing::Broker, :worker do
  def channel_of(broker)
    connection = Bunny.new(broker.url.delete_suffix("/")).start
    yield connection.create_channel
  ensure
    connection&.close
  end

  before { require "bunny" }

  it "has a spec in the guide that passes: model_spec" do
    load = $LOAD_PATH.grep(%r{backhop|ruby/lib|build}).flat_map { |path| ["-I", path] }
    spec = File.expand_path("../../examples/ruby/model_spec.rb", __dir__)
    output, status = Open3.capture2e("rspec", "--options", File::NULL, *load, spec)
    expect(status).to be_success, output
  end

  it "keeps what is durable over a restart", :backhop_broker do
    channel_of(backhop_broker) do |channel|
      channel.confirm_select
      queue = channel.queue("kept", durable: true)
      [false, true].each { |persistent| queue.publish("x", persistent: persistent) }
      channel.wait_for_confirms
    end
    backhop_broker.control("kill")
    backhop_broker.control("start")
    channel_of(backhop_broker) { |channel| expect(channel.queue("kept", durable: true).message_count).to eq(1) }
  end

  it "lets time pass by command if its clock is real" do
    broker = described_class.new(version: "4.0", clock: :real)
    channel_of(broker) do |channel|
      channel.confirm_select
      channel.queue("late", durable: true, arguments: { "x-message-ttl" => 3_600_000 }).publish("x")
      channel.wait_for_confirms
    end
    expect(broker.control("list", "queues").first).to start_with("late\tclassic\t1\t")
    broker.control("advance", 3_600_000)
    expect(broker.control("list", "queues").first).to start_with("late\tclassic\t0\t")
    broker.close
  end

  it "says what is wrong" do
    expect { described_class.new(version: "2.0") }
      .to raise_error(Backhop::Error, /'2\.0' is no version of the model: give 3\.10, 4\.0 or 4\.3/)
    broker = described_class.new
    expect { broker.control("dance") }.to raise_error(Backhop::Error, /'dance' is unknown/)
    expect { broker.control("purge", "it has a space", "q") }
      .to raise_error(Backhop::Error, /no vhost 'it has a space'/)
    2.times { broker.close }
    expect { broker.control("now") }.to raise_error(Backhop::StateError, /the broker is closed/)
  end
end
