# frozen_string_literal: true

module Backhop
  module Bunny
    # The Bunny that is loaded is none that Backhop was tested with.
    class VersionError < Error; end

    # The oldest Bunny that is taken, and the first that is not.
    VERSIONS = ["2.19", "4"].freeze

    # Refuses a Bunny that is too old, or newer than all that is known.
    # @api private
    def self.check_version(version = ::Bunny::VERSION)
      least, over = VERSIONS.map { |each| Gem::Version.new(each) }
      return if Gem::Version.new(version).then { |found| found >= least && found.release < over }

      raise VersionError, "Bunny #{version} is loaded, and Backhop #{Backhop::VERSION} works with Bunny from #{least} on and " \
                          "below #{over}: have your Gemfile say gem \"bunny\", \">= #{least}\", \"< #{over}\""
    end
  end
end
