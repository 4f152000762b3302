# frozen_string_literal: true

require "rubygems/package"

# The built gem and its contents.
RSpec.describe "The gem" do
  it "has the core's version" do
    info = Backhop.build_info
    expect(info.version).to eq(Backhop::VERSION)
    expect(info.to_s).to include(info.version)
  end

  it "has no worker and no version of librabbitmq without librabbitmq" do
    info = Backhop.build_info
    expect([!info.librabbitmq_compiled.nil?, !info.librabbitmq_loaded.nil?]).to all(be(info.worker?))
    expect(info.to_s.include?("no Worker")).to eq(!info.worker?)
  end

  context "as a file", if: ENV["BACKHOP_GEM"] do
    package = ENV["BACKHOP_GEM"] && Gem::Package.new(ENV["BACKHOP_GEM"])
    entries = []
    package && File.open(ENV["BACKHOP_GEM"], "rb") do |io|
      Gem::Package::TarReader.new(io).seek("data.tar.gz") do |data|
        Zlib::GzipReader.wrap(data) do |gzip|
          Gem::Package::TarReader.new(gzip).each { |entry| entries << [entry.full_name, entry.header.typeflag] }
        end
      end
    end
    files = entries.map(&:first)

    it "is what is tested" do
      expect($LOADED_FEATURES.grep(%r{/backhop/native\.}).first).to start_with(File.join(ENV.fetch("GEM_HOME"), "/"))
      expect(package.spec.version.to_s).to eq(Backhop::VERSION)
    end

    it "holds regular files alone" do
      expect(entries.reject { |_, type| type == "0" }).to be_empty
    end

    it "holds what has to be there" do
      expect(files).to include(
        "README.md", "LICENSE", ".yardopts", "backhop.gemspec", "lib/backhop.rb", "lib/backhop/worker.rb",
        "lib/backhop/bunny.rb", "lib/backhop/kicks.rb", "sig/backhop.rbs", "ext/backhop/extconf.rb",
        "ext/backhop/backhop_wrap.c", "ext/backhop/core/include/backhop.h", "ext/backhop/core/src/plan/plan.c",
        "ext/backhop/core/src/worker/absent.c", "ext/backhop/command/main.c", "exe/backhop"
      )
    end

    it "holds nothing else" do
      known = [
        /\A(README\.md|LICENSE|\.yardopts|backhop\.gemspec)\z/, %r{\Aexe/backhop\z}, %r{\Alib/backhop(\.rb|/.+\.rb)\z},
        %r{\Asig/\w+\.rbs\z}, %r{\Aext/backhop/(extconf\.rb|backhop_wrap\.c)\z},
        %r{\Aext/backhop/(VERSION|(core/include|core/src|command)/[\w/]+\.[ch])\z}
      ]
      expect(files.reject { |file| known.any? { |pattern| pattern.match?(file) } }).to be_empty
    end

    it "holds all of the core's sources, and all of the library" do
      skip "the core is not beside these specs" unless File.directory?(File.expand_path("../../core", __dir__))

      ruby = File.expand_path("..", __dir__)
      core = Dir[File.join(ruby, "../{core/src,core/include,command}/**/*.{c,h}")].map do |path|
        "ext/backhop/#{path.delete_prefix("#{ruby}/../")}"
      end
      library = Dir[File.join(ruby, "{lib,sig}/**/*.{rb,rbs}")].map { |path| path.delete_prefix("#{ruby}/") }
      expect(files).to include(*core, *library)
    end
  end
end
