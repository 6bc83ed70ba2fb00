module asks

go 1.23

require loopguard v0.0.0

replace loopguard => ../../../clients/go
