// The one file in which Asio's own functions are compiled: as headers only, every library that uses
// it compiles them again.
#include <boost/asio/impl/src.hpp>
