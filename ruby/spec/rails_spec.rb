# frozen_string_literal: true

require "open3"
require "tmpdir"

# README's recipe for Rails, in an application of its own process.
RSpec.describe "In Rails", if: Gem::Specification.any? { |each| each.name == "railties" } do
  application = <<~RUBY
    require "logger"
    require "rails"
    require "backhop"

    class Application < Rails::Application
      config.root = ENV.fetch("ROOT")
      config.eager_load = false
      config.cache_classes = false
      config.logger = Logger.new($stdout, formatter: ->(_, _, _, text) { text + "\\n" })
    end
    Application.initialize!
    Backhop.logger = Rails.logger

    def rehearse
      rehearsal = Backhop::Testing.rehearse("x", policy: Backhop::Policy.new(max_attempts: 2)) do |message|
        Rails.application.reloader.wrap { Purge.call(message.body) }
      end
      puts rehearsal.outcome
    end
    rehearse
    purge = 'class Purge; def self.call(_) = raise(KeyError, "new"); end'
    File.write(File.join(ENV.fetch("ROOT"), "app/models/purge.rb"), purge)
    rehearse
  RUBY

  it "a handler in the reloader sees code that was changed, and its errors come out" do
    Dir.mktmpdir do |root|
      code = File.join(root, "app/models/purge.rb")
      FileUtils.mkdir_p(File.dirname(code))
      File.write(code, "class Purge; def self.call(_) = nil; end")
      File.utime(Time.now - 60, Time.now - 60, code)
      output, status = Open3.capture2e({ "ROOT" => root, "RUBYOPT" => nil }, RbConfig.ruby, "-e", application)
      expect([output.lines.grep(/\A(acked|parked)/).map(&:chomp), status.success?])
        .to eq([%w[acked parked], true]), output
    end
  end
end
