"""The parts of a drill: a steady offer of orders, a view of what etcd commits, and faults made on purpose."""
