# frozen_string_literal: true

module Backhop
  # The versions of this build. Print it if you report a bug.
  #
  # @!attribute [r] version
  #   @return [String] the version of the gem and of the core
  # @!attribute [r] worker
  #   @return [Boolean] true if it was built with librabbitmq, which Worker needs
  # @!attribute [r] librabbitmq_compiled
  #   @return [String, nil] the version of librabbitmq at compile time; nil without librabbitmq
  # @!attribute [r] librabbitmq_loaded
  #   @return [String, nil] the version of librabbitmq at run time; nil without librabbitmq
  BuildInfo = Struct.new(:version, :worker, :librabbitmq_compiled, :librabbitmq_loaded, keyword_init: true) do
    # @return [Boolean] the same as {#worker}
    def worker? = worker

    # @return [String] one line of text
    def to_s
      return "backhop #{version}, without librabbitmq: no Worker" unless worker?

      "backhop #{version}, compiled with librabbitmq #{librabbitmq_compiled}, running with #{librabbitmq_loaded}"
    end
  end

  # Returns the versions of this build.
  #
  # @return [BuildInfo]
  def self.build_info
    compiled, loaded = Native.bh_worker_librabbitmq.map { |version| Core.text(version) }
    BuildInfo.new(version: VERSION, worker: !compiled.nil?, librabbitmq_compiled: compiled,
                  librabbitmq_loaded: loaded).freeze
  end
end
