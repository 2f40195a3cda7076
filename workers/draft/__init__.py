"""The drafter: growing token trees and the gRPC service that sends them."""
