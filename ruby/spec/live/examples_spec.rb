# frozen_string_literal: true

require "spec_helper"
require "open3"
require_relative "support"

RSpec.describe "The examples", :long, skip: NEEDS_BROKER do
  include Patience

  # The programs use the same names, so each has a vhost of its own.
  around do |example|
    default = Broker.new
    default.with_vhost do |url|
      @url = url
      example.run
    end
  ensure
    default&.close
  end

  let(:broker) { Broker.new(@url) }

  after { broker.close }

  def command(name)
    paths = $LOAD_PATH.grep(%r{backhop|ruby/lib|build}).flat_map { |path| ["-I", path] }
    program = File.expand_path("../../../examples/ruby/#{name}.rb", __dir__)
    [{ "AMQP_URL" => @url }, RbConfig.ruby, "-w", *paths, program]
  end

  def expect_all_purged(name)
    output, status = Open3.capture2(*command(name))
    expect(status).to be_success
    expect(output).to match(/^19 pages purged, \d+ refusals, 1 parked$/)
    expect(output).to match(/attempt 1: 507 queue is full/)
  end

  it "purge all pages of a site over Bunny, and park the one that no attempt can purge" do
    expect_all_purged("cdn_purge_bunny")
  end

  it "purge them with the worker", :worker do
    expect_all_purged("cdn_purge_worker")
  end

  it "R4-8: begin with the quickstart, which ends with the third attempt, and at Ctrl-C without a word" do
    broker.channel.queue_delete("purges")
    Open3.popen2e(*command("quickstart")) do |_, output, process|
      lines = Array.new(3) { output.gets.chomp }
      Process.kill("INT", process.pid)
      expect(lines).to eq((1..3).map { |attempt| "/index.html, attempt #{attempt}" })
      expect([output.read, process.value.success?]).to eq(["", true])
    end
  end

  # Runs an example on a broker without the queue "purges", publishes a page, and returns that many
  # lines.
  def lines_of(name, count)
    %w[purges purges.parked].each { |queue| broker.channel.queue_delete(queue) }
    Open3.popen2(*command(name)) do |_, output, process|
      publish_when_declared
      Array.new(count) { output.gets.to_s.chomp }
    ensure
      Process.kill("KILL", process.pid)
    end
  end

  def publish_when_declared
    until_true { broker.count("purges") }
    broker.insist("/index.html", "purges")
  end

  three_attempts = (1..3).map { |attempt| "/index.html, attempt #{attempt}" }

  it "retry in a consumer of the application until the third attempt" do
    expect(lines_of("own_consumer", 3)).to eq(three_attempts)
  end

  %w[quickstart_worker breaker].each do |example|
    it "retry with the worker of #{example} until the third attempt", :worker do
      expect(lines_of(example, 3)).to eq(three_attempts)
    end
  end

  it "observe a message that is parked, and count it" do
    lines = lines_of("observed", 4)
    expect(lines.first(3)).to eq(three_attempts)
    expect(lines.last).to start_with("parked: message ").and end_with("RuntimeError")
  end

  it "lose what fails, in the tutorial's first consumer" do
    output = Open3.capture2(*command("tutorial_loses")).first
    expect(output).to include("/old/front-page    404 no such site\n").and end_with("\n1 of 20 pages purged\n") # P4-23
  end

  it "spare the API that requeueing hammers" do
    hammers, retries = %w[tutorial_hammers tutorial_retries].map { |name| Open3.capture2(*command(name)).first }
    refusals = [hammers, retries].map { |output| Integer(output[/^19 of 20 pages purged, (\d+) refusals/, 1]) }
    # The fifth attempt is the last. How often requeueing calls depends on the machine.
    expect(refusals.last).to be <= 19 * 4
    expect(retries).to end_with(", 1 parked\n") # so no message of this example comes back in the next one
  end

  it "end as their comments have it", :worker do
    lines = Open3.capture2(*command("outcomes")).first.lines(chomp: true)
    expect(lines.drop(1)).to eq(
      ["429: acked after 2", "503: acked after 2", "404: parked after 1", "410: dropped after 1", "500: acked after 2"]
    )
  end

  it "have a spec that passes: rehearsal_spec" do
    load = $LOAD_PATH.grep(%r{backhop|ruby/lib|build}).flat_map { |path| ["-I", path] }
    spec = File.expand_path("../../../examples/ruby/rehearsal_spec.rb", __dir__)
    expect(Open3.capture2("rspec", "--options", File::NULL, *load, spec).last).to be_success
  end

  it "work off jobs until Ctrl-C" do
    Open3.popen2(*command("work_queue_bunny")) do |_, output, process|
      lines = []
      lines << output.gets.chomp until lines.grep(/is done/).size == 3
      Process.kill("INT", process.pid)
      expect(lines).to include("job 0, attempt 1", "job 1, attempt 3", "job 2, attempt 3")
      expect(process.value).to be_success
    end
  end
end
