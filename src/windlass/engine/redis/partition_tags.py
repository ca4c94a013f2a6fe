"""The hash tags of partitions, which decide their slots in a cluster.

The tag of a partition depends on its number only. The slots of the first 2, 4, 8 ... partitions are
evenly spaced, so that they lie evenly on any number of nodes with equal ranges of slots.
`tools/make_partition_tags.py` wrote this module. Stored keys contain the tags: never change them.
"""

from __future__ import annotations

from typing import Final

_SIZE: Final = 3
_TAGS: Final = (
    "fkt1cbfzv16hbgy5oob2sa5u3eddmr30nd8x7iihhg7xkhyegyu05kghw8iyc1p49fcdz4ll23m8832fg8m9c50a7v"
    "6jjikd1brfjd17x3q6hm77l9q357931f23dt1383uvhiw7hyhxujz30ps2r50aq2c748vcthin4cej0t32vu0e12gw"
    "a6f6zxacl6kzj3b52lbop5gff6w1zinje1kk74jh5dbk0qkf38g9393mm9f3cls4dec9y41ooif0hhg5t0yj6bcaju"
    "67ii6g2nn8e0g148t25wt7u25fv7d096if7g9ccfbm5s475z5b6jc8d1a39wddkno54eu6g34tw6290ixgan0xzg4d"
    "4a56cs4p766y0m8ol6082v247mmhlc78gh9ifk0div34jdxtjje5kkb6w5zifop1gfn3b12lc14a3r6nnafx27im6g"
    "2bcejuc5t4yjkif4hhg9y01ogls0dehmsjo5h8y79w1b6nc81s435zhi3bbmhx1b7g1fv3d01wt3u2482r244m8kl6"
    "0p726y0a52cs4xzc4d4ixcan0tw2290eu2g33xk9s53ii9b770nhuh7edhdjf2s9wufgy1oobzv56hbkt5cb2jj8a4"
    "g508p66fganq63mi2cgdz0llg1p09fchwaj1cyu45kd5enz3liw3hy5387uv5f27dt92m3939gg3l957x7q65brbjd"
    "ecl2kze6f2zx4e16gw4t36vu8ddgej08vgth4aq6c74ps6r521oe9y2deels6yja5t6hhiifo6g07igju0bcc3ra14"
    "cfx4nn3gf9l832l9927kkhje7ziq4gfiv9hxfxt14jjlc5mmb0q58g0292tw0g32eua4d6xzaan6ix06y2p70cs2a5"
    "p24682il66m81d03fv1u23wthkuji3hzwjx19ih3b615z3s4ho5bdk59wb1acj1ahw65kayu2ll8g229f828cnq4fg"
    "k2c43mokd0jjg7v86x76hh7f7cbhblf059u33oo9d1b8x50nbmr5edf4u1xknhg1ii4c76aq4r56pseejon4eth28v"
    "4gw6e14vu6t30kzgcl0zxg6f5q677xqht7br193w351l9nm75uv7385dt7f294kf5e1hyniwc7va50kkd4jjo2c03m"
    "gnq0fg69fa1p6lladz25keyugj1ehwjhg5iib4u5xkfmr1edf8x10n7oohnab05q0c3cbdkt36hdzv4zxc6f4kzccl"
    "0vu2t30gw2e1ath68vaejkn40r52ps0c72aq5hyjiwhz3b5e1dt3f21uv3385l9jm7593s35djd3br1q637xgfx0nn"
    "g3r8vtcju4bck6g47i2hh8c62yj8r46deals61oa9yf0q18gnlc1mmbxt54jbiv48y3zi9q73kklje72lh3b7gfhfh"
    "8ff2m883l2824cs6a546y6p7ean2ixe4d2xz4g36eu4296tw19wf1a9eefdk55z7s4hc87b6d7gnx1dbmni35u27wt"
    "5d07fv2s405z2b68ihc1a49wcdkio52wt0u22fv0d0kx1a7gki3abm3a51cs3p716y7m8hl6782q243eu1g33tw129"
    "7ixhhv7xzhyt04jgxt8hxgiv48gc0q4mmklc89222l8l82gfa6w6ziije6kk1bcfju17in6g5nnbfxia5b3rdls3de"
    "d9y31ohif7hhhxd7yj6f24dt6384uvoiw0hyg5e84k6brajd67x4q6om70l9v350937t35vu7e15gwf6f1zxfcl1kz"
    "7ps5r57aq5c738vdthnn4dej4edcmr40nc8x0iiohg0xkg4uakt6cbazv66h8d12oo8u3g0553mj2c5fgbnq96xf7v"
    "1jjnkdh4e75khaobj192839f9g23llr35493km74l927x0q62brejdc5eiz3kiw4hy2380uv2f20dtjn4hlr78vh9x"
    "3aq1c73ps1r5bcl5kzb6f5zx3e11gw3t31vua2sc05agy6ooezv26hekt2cb4xkc4u4iikhg00ng8x0edgmrhmb7ll"
    "h8h79fdhwfj1dyu35k5jjjkdyz0b7v1fgfnq13mn2coi3ebmox1e7g6fv4d06wt4u2gdk8eeg1a09w6b6ic86s445z"
    "3xzd4d3ixdan7tw5297eu5g338293l3m89ff7p756y7a55csmje2kk8q72ziaop6gfi3b62l0mmolc08gg0qak0civ"
    "44jcxt9r43yj9c63hhh0a71ohek7de9vtf3r1nnffx57ij6g5bcbju3gw1e13vu1t37kzhjt7zxq4v3c71aq3r51ps"
    "bejhn4bth58v2uv0382dt0f2kz3a5e6hyiiw2q607xgjd0br693p356l9im79m93fg98333mhkd7jjhzfb509iyfhw"
    "15kfyu5llbdz59fb1pe8x20nemr2eda4u6xkihg6ii06hgzv0cbgkta05c2s4oocgy76y5p77cs5a5w24182nl61m8"
    "7295tw7g35euf4d1xzfan1ixkc84b665z4s4oo5edk29we1a6d04fv6u24wtgbm8ccg7g86ih6g77ihcm7bc9t2f14"
    "9e03nn51ob9y5debls1yjf5t1hhnifaivck0axt64j8f32mm83928g4gfcop42lk3b0kkoje0zig6wban5ixb4d5xz"
    "3g31eu3291twjl65m8s245823cs1a536y1p7c7gix1cbmii32u20wt2d00fv69wa1ako5adk25z0s4oc80b65hhjif"
    "5yjb5t1defls11of9yqdh7nnq1bb14dju3bcl6g37i4zic6w4kkkje02lo3b0gfgopa0q68gilc6mmext24jeivgk0"
    "fth18vfej9dd7r55ps7c75aq3zxd6f3kzdcl7vu5t37gw5e12l98gg29382mcjd4br6q647x2hymiwoz3e5e6dt4f2"
    "6uv43819ff1p1llfdz55kbyuya9bhw9p6f509a43jjh2c73mhgi7fg0ooggy8wug2s4cbckt46hczv8b72ii8s52xk"
    "amr6eda8x60n"
)


def tag_of(partition: int) -> str:
    return _TAGS[_SIZE * partition : _SIZE * (partition + 1)]
