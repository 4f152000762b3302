# frozen_string_literal: true

module Backhop
  # What this Backhop was built of; print it when you report a bug.
  #
  # @!attribute [r] version
  #   @return [String] of the core, which is the gem's too
  # @!attribute [r] worker
  #   @return [Boolean] whether it was built with librabbitmq, so that there is a Worker
  # @!attribute [r] librabbitmq_compiled
  #   @return [String, nil] the version of librabbitmq that it was compiled with; nil without
  # @!attribute [r] librabbitmq_loaded
  #   @return [String, nil] the version that runs
  BuildInfo = Struct.new(:version, :worker, :librabbitmq_compiled, :librabbitmq_loaded, keyword_init: true) do
    # @return [Boolean] as {#worker}
    def worker? = worker

    # @return [String]
    def to_s
      return "backhop #{version}, without librabbitmq: no Worker" unless worker?

      "backhop #{version}, compiled with librabbitmq #{librabbitmq_compiled}, running with #{librabbitmq_loaded}"
    end
  end

  # Versions compiled and loaded, and whether there is a Worker.
  #
  # @return [BuildInfo]
  def self.build_info
    compiled = Core.text(Native.bh_worker_librabbitmq_compiled)
    BuildInfo.new(version: VERSION, worker: !compiled.nil?, librabbitmq_compiled: compiled,
                  librabbitmq_loaded: Core.text(Native.bh_worker_librabbitmq_loaded)).freeze
  end
end
