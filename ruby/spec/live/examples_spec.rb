# frozen_string_literal: true

require "spec_helper"
require "open3"
require_relative "support"

RSpec.describe "The examples", skip: NEEDS_BROKER do
  def command(name)
    paths = $LOAD_PATH.grep(%r{backhop|ruby/lib|build}).flat_map { |path| ["-I", path] }
    [RbConfig.ruby, "-w", *paths, File.expand_path("../../../examples/ruby/#{name}.rb", __dir__)]
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

  it "begin with the quickstart, which ends with the third attempt" do
    Broker.new.tap { |broker| broker.channel.queue_delete("purges") }.close
    Open3.popen2(*command("quickstart")) do |_, output, process|
      lines = Array.new(3) { output.gets.chomp }
      Process.kill("KILL", process.pid)
      expect(lines).to eq((1..3).map { |attempt| "/index.html, attempt #{attempt}" })
    end
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
